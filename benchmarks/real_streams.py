"""Prequential accuracy on real streams: python -m benchmarks.real_streams [FOLDER] [--streams NAME …] [--shuffles N]

Every online learner and the default session beside River and scikit-learn, on shuffled streams: each point is
predicted, then learned. FOLDER has the paper's embeddings (`olsson_poincare_embedding.npz` …); without it they are
looked for in `../shared/data` beside the project, and where they are not, the synthetic streams run alone. Printed are
means over the shuffles ± their standard deviation in per cent; curves go to results/real_streams.png.

    default session       POST /sessions with a dimension and labels: auto, which is second order on φ (averaged),
                          softmax and wrapped normals, voting; the softmax begins anew from a batch softmax at 25·2^j
    …, restart on drift   the same with {"drift": {"on_drift": "restart"}}
    0.1                   the default of version 0.1: one perceptron a class at the origin (two classes: one)
    raw, φ                the peers get ball coordinates, or hemisphere coordinates

Ours are the service's own sessions, without the store: the same function makes what a commit writes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from river import forest, linear_model, multiclass, naive_bayes, preprocessing, tree
from sklearn.linear_model import Perceptron, SGDClassifier
from sklearn.naive_bayes import GaussianNB

from service.api.schemas import OpenSession
from service.geometry import Array, exp_map, hemisphere
from service.sessions.apply import apply
from service.sessions.beginnings import Past, needs_past
from service.sessions.opening import first_session
from service.sessions.requests import Answer, Request
from service.sessions.rows import Batch

Labels = NDArray[np.int64]
Flags = NDArray[np.bool_]
ROOT = Path(__file__).parents[1]
PICTURE = Path(__file__).parent / "results" / "real_streams.png"
BLOCK, SHUFFLES = 1000, 5


@dataclass(frozen=True)
class Stream:
    name: str
    X: Array
    y: Labels
    K: int
    drift: int | None = None  # where the classes are permuted

    def shuffled(self, seed: int) -> tuple[Array, Labels]:
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(self.y))
        X, y = np.ascontiguousarray(self.X[order]), self.y[order]
        if self.drift is not None:
            y[self.drift :] = (y[self.drift :] + 1 + rng.integers(self.K - 1)) % self.K
        return X, y


# ---------------------------------------------------------------------------------- the streams


def data_folder(given: str | None) -> Path | None:
    folder = Path(given) if given else ROOT.parent / "shared" / "data"
    folder = folder if folder.exists() or given else ROOT.parents[1] / "shared" / "data"  # a tree beside the project
    if folder.exists():
        return folder
    print(f"NO REAL DATA: {folder} is not there; the synthetic streams run alone", file=sys.stderr)
    return None


def embedding(folder: Path, name: str, parts: tuple[str, ...]) -> tuple[Array, Labels, int]:
    with np.load(folder / f"{name}_poincare_embedding.npz", allow_pickle=False) as data:
        X = np.concatenate([data[f"x_{part}"] for part in parts]).astype(np.float64)
        names, y = np.unique(np.concatenate([data[f"y_{part}"] for part in parts]), return_inverse=True)
    return X, y.astype(np.int64), len(names)


def wrapped_normals(rng: np.random.Generator, n: int, centres: Array, width: float) -> tuple[Array, Labels]:
    """Points about each centre, a vector of the tangent space at the origin"""
    y = rng.integers(len(centres), size=n)
    V = centres[y] + width * rng.standard_normal((n, centres.shape[1]))
    return exp_map(np.zeros(centres.shape[1]), V / 2), y


def ring(K: int, radius: float = 3.0) -> Array:
    angle = 2 * np.pi * np.arange(K) / K
    return radius * np.column_stack([np.cos(angle), np.sin(angle)])


def streams(folder: Path | None) -> Iterator[Stream]:
    if folder:
        yield Stream("Olsson", *embedding(folder, "olsson", ("train", "test")))
        for name, title in (("cifar", "CIFAR10"), ("fashion-mnist", "Fashion-MNIST")):
            for part in ("test", "train"):
                yield Stream(f"{title} {part}", *embedding(folder, name, (part,)))
    rng = np.random.default_rng(0)
    for K, width in ((10, 0.4), (30, 0.135)):
        yield Stream(f"{K} clusters", *wrapped_normals(rng, 10_000, ring(K), width), K)
    X, _ = wrapped_normals(rng, 10_000, np.zeros((1, 8)), 0.8)
    height = hemisphere(X) @ rng.standard_normal(10)
    side = (height >= np.median(height)).astype(np.int64)
    yield Stream("binary, 8-d, 10 % noise", X, np.where(rng.random(10_000) < 0.1, 1 - side, side), 2)
    yield Stream("6 normals, 10-d", *wrapped_normals(rng, 10_000, rng.standard_normal((6, 10)), 0.9), 6)
    if folder:
        whole = embedding(folder, "fashion-mnist", ("test",))
        yield Stream("Fashion, classes permuted at 5,000", *whole, drift=5000)
    yield Stream("10 clusters, permuted at 5,000", *wrapped_normals(rng, 10_000, ring(10), 0.4), 10, drift=5000)


# ---------------------------------------------------------------------------------- ours


Run = Callable[[Array, Labels, int], Flags]


def ours(**settings: Any) -> Run:
    """A session opened with these settings: what the service would answer, whatever the requests it comes in"""

    def run(X: Array, y: Labels, K: int) -> Flags:
        after = first_session(OpenSession(dimension=X.shape[1], labels=[*range(K)], **settings).spec())
        keep, wrong = after.spec.keep_points, list[Flags]()
        for at in range(0, len(y), BLOCK):
            block = Batch(X[at : at + BLOCK], y[at : at + BLOCK])
            old = slice(max(0, at - keep), at)
            past = Past(Batch(X[old], y[old])) if needs_past(after, len(block)) else None
            applied = apply(after, [Request(block)], past)
            [answer], after = applied.results, applied.change.after
            assert isinstance(answer, Answer) and answer.decided is not None
            wrong.append(answer.decided != block.indices)
        return np.concatenate(wrong)

    return run


RESTART = {"on_drift": "restart"}
OURS: dict[str, Run] = {
    "default session (auto)": ours(),
    "…, restart on drift": ours(drift=RESTART),
    "auto without refits": ours(refit="none"),
    "second order φ, averaged": ours(algorithm="second_order"),
    "second order φ, last": ours(algorithm="second_order", average=False),
    "perceptron φ, averaged": ours(algorithm="perceptron"),
    "softmax φ, refits": ours(algorithm="softmax"),
    "softmax φ, alone": ours(algorithm="softmax", refit="none"),
    "wrapped normals": ours(algorithm="gaussian"),
    "hyperboloid perceptron": ours(algorithm="hyperboloid"),
    "0.1: perceptron at 0": ours(reference="origin"),
}


# ---------------------------------------------------------------------------------- the peers


def river(make: Callable[[], Any], *, phi: bool = False) -> Run:
    def run(X: Array, y: Labels, K: int) -> Flags:
        model, wrong = make(), np.empty(len(y), dtype=np.bool_)
        rows = (hemisphere(X)[:, 1:] if phi else X).tolist()
        for i, (row, label) in enumerate(zip(rows, y.tolist(), strict=True)):
            x = dict(enumerate(row))
            wrong[i] = model.predict_one(x) != label
            model.learn_one(x, label)
        return wrong

    return run


def sklearn(make: Callable[[], Any], *, phi: bool = False) -> Run:
    def run(X: Array, y: Labels, K: int) -> Flags:
        model, wrong = make(), np.empty(len(y), dtype=np.bool_)
        F = hemisphere(X)[:, 1:] if phi else X
        with np.errstate(all="ignore"):  # its GaussianNB divides by zero until every class was seen twice
            for i in range(len(y)):
                wrong[i] = i == 0 or model.predict(F[i : i + 1])[0] != y[i]
                model.partial_fit(F[i : i + 1], y[i : i + 1], classes=np.arange(K))
        return wrong

    return run


def scaled(model: Any) -> Any:
    return preprocessing.StandardScaler() | model


RIVER: dict[str, Callable[[], Any]] = {
    "softmax, scaled": lambda: scaled(linear_model.SoftmaxRegression()),
    "GaussianNB": naive_bayes.GaussianNB,
    "OvR perceptron, scaled": lambda: scaled(multiclass.OneVsRestClassifier(linear_model.Perceptron())),
    "Hoeffding tree": tree.HoeffdingTreeClassifier,
}
SKLEARN: dict[str, Callable[[], Any]] = {
    "SGD, log loss": lambda: SGDClassifier(loss="log_loss", random_state=0),
    "Perceptron": lambda: Perceptron(random_state=0),
    "GaussianNB": GaussianNB,
}
PEERS: dict[str, Run] = {
    **{f"River {name}, raw": river(make) for name, make in RIVER.items()},
    **{f"River {name}, φ": river(make, phi=True) for name, make in RIVER.items()},
    "River ARF, raw": river(lambda: forest.ARFClassifier(seed=0)),
    **{f"sklearn {name}, raw": sklearn(make) for name, make in SKLEARN.items()},
    **{f"sklearn {name}, φ": sklearn(make, phi=True) for name, make in SKLEARN.items()},
}


# ---------------------------------------------------------------------------------- tables and curves


@dataclass(frozen=True)
class Result:
    wrong: list[Flags]  # a shuffle each
    seconds: float  # CPU, of all

    @property
    def accuracies(self) -> Array:
        return np.array([100 * (1 - w.mean()) for w in self.wrong])

    def rate(self) -> float:
        return sum(map(len, self.wrong)) / self.seconds


def measured(stream: Stream, run: Run, shuffles: int) -> Result:
    wrong, seconds = [], 0.0
    for seed in range(shuffles):
        X, y = stream.shuffled(seed)
        start = time.thread_time()
        wrong.append(run(X, y, stream.K))
        seconds += time.thread_time() - start
    return Result(wrong, seconds)


def print_stream(stream: Stream, results: dict[str, Result]) -> None:
    n, d = stream.X.shape
    print(f"\n{stream.name}: {n:,} points, d = {d}, {stream.K} classes\n")
    print(f"{'':<34}{'accuracy':>9}{'±':>6}{'last 1,000':>12}{'points/s':>12}")
    for name, result in results.items():
        a, late = result.accuracies, 100 * (1 - np.mean([w[-1000:].mean() for w in result.wrong]))
        print(f"{name:<34}{a.mean():>9.2f}{a.std():>6.2f}{late:>12.2f}{result.rate():>12,.0f}")
    peers = {name: result.accuracies.mean() for name, result in results.items() if name in PEERS}
    if peers:
        best = max(peers, key=lambda name: float(peers[name]))
        for name in (name for name in list(OURS)[: 2 if stream.drift else 1] if name in results):
            mine = results[name].accuracies.mean()
            print(f"{name} {mine:.2f}, best peer {peers[best]:.2f} ({best}): {mine - peers[best]:+.2f}")
    if stream.drift is not None:
        for name in list(OURS)[:2]:
            before, after = (
                100 * (1 - np.mean([w[at - 1000 : at].mean() for w in results[name].wrong]))
                for at in (stream.drift, stream.drift + 2000)
            )
            print(
                f"{name}: {before:.2f} % in the 1,000 points before the drift, {after:.2f} % in 1,000 to 2,000 after it"
            )
    sys.stdout.flush()


SHOWN = {
    "default session (auto)": "C3",
    "…, restart on drift": "C1",
    "wrapped normals": "C2",
    "0.1: perceptron at 0": "0.4",
    "River softmax, scaled, raw": "C0",
    "River GaussianNB, raw": "C9",
    "River Hoeffding tree, raw": "C4",
}


def draw(everything: dict[str, dict[str, Result]], picture: Path) -> None:
    """The accuracy so far, the mean of the shuffles"""
    columns = min(3, len(everything))
    rows = -(-len(everything) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.2 * rows), layout="constrained", dpi=150)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (title, results) in zip(grid, everything.items(), strict=False):
        for name, color in SHOWN.items():
            if name in results:
                right = 1 - np.mean(results[name].wrong, axis=0)
                t = np.arange(1, len(right) + 1)
                axes.plot(t, 100 * np.cumsum(right) / t, color=color, label=name, linewidth=1.4)
        axes.set_xscale("log")
        axes.set_xlim(10, None)
        axes.set_ylim(0, 100)
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.3)
    for axes in grid[len(everything) :]:
        axes.set_axis_off()
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.supylabel("accuracy so far, %")
    picture.parent.mkdir(exist_ok=True)
    figure.savefig(picture)
    print(f"\nPicture: {picture}")


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_streams")
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--streams", nargs="*", help="only those whose names begin so")
    parser.add_argument("--shuffles", type=int, default=SHUFFLES)
    parser.add_argument("--without", nargs="*", default=[], help="leave out what has this in its name, as ARF")
    parser.add_argument("--picture", type=Path, default=PICTURE)
    asked = parser.parse_args([] if words is None else words)
    everything = {}
    for stream in streams(data_folder(asked.folder)):
        if asked.streams and not any(stream.name.startswith(name) for name in asked.streams):
            continue
        runs = {name: run for name, run in (OURS | PEERS).items() if not any(part in name for part in asked.without)}
        results = {name: measured(stream, run, asked.shuffles) for name, run in runs.items()}
        print_stream(stream, results)
        everything[stream.name] = results
    draw(everything, asked.picture)


if __name__ == "__main__":
    main(sys.argv[1:])
