"""Prequential accuracy on real streams: python -m benchmarks.real_streams [FOLDER] [--streams NAME …] [--shuffles N]

Every online learner and the default session beside River and scikit-learn, on shuffled streams: each point is
predicted, then learned. FOLDER has the paper's embeddings (`olsson_poincare_embedding.npz` …); without it they are
looked for in `../shared/data` beside the project, and where they are not, the synthetic streams run alone. Given are
means over the shuffles ± their standard deviation in per cent; the table goes to results/real_streams.txt, the curves
to results/real_streams.png.

    default session       POST /sessions with a dimension and labels: auto, which is second order on φ (averaged),
                          softmax and wrapped normals, voting; the softmax begins anew from a batch softmax at 25·2^j
    0.1                   the default of version 0.1: one perceptron a class at the origin (two classes: one)
    raw, φ                the peers get ball coordinates, or hemisphere coordinates

Ours are the service's own sessions, without the store: the same function makes what a commit writes. River learns a
point at a time. So does scikit-learn at first; a call costs it milliseconds, so after 100 points they come in blocks of
one hundredth of what it has seen: what answers is at most 1 % of the stream behind. Streams of more than 20,000 points
have one shuffle for it (column n), and no adaptive random forest, which takes two milliseconds a point.

A whole run takes the peers an hour or two. What each of them got wrong is kept in `.benchmarks/`, a file a shuffle, and
table and curves are written anew after every stream of every shuffle: a run that was stopped goes on where it was, and
`--fresh` begins anew. Ours run every time.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from river import forest, linear_model, multiclass, naive_bayes, preprocessing, tree
from sklearn.linear_model import SGDClassifier
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
RESULTS = Path(__file__).parent / "results"
KEPT = ROOT / ".benchmarks" / "real_streams"
BLOCK, SHUFFLES = 1000, 5
LONG = 20_000  # a stream of more points has one shuffle for scikit-learn, and no ARF


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
    images = (("cifar", "CIFAR10"), ("fashion-mnist", "Fashion-MNIST"))
    if folder:
        yield Stream("Olsson", *embedding(folder, "olsson", ("train", "test")))
        for name, title in images:
            yield Stream(f"{title} test", *embedding(folder, name, ("test",)))
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
    if folder:
        for name, title in images:
            yield Stream(f"{title} train", *embedding(folder, name, ("train",)))


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


OURS: dict[str, Run] = {
    "default session (auto)": ours(),
    "…, alarm on drift, no restart": ours(drift={"on_drift": "alarm"}),
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
        model, wrong, at = make(), np.ones(len(y), dtype=np.bool_), 0
        F = hemisphere(X)[:, 1:] if phi else X
        with np.errstate(all="ignore"):  # its GaussianNB divides by zero until every class was seen twice
            while at < len(y):
                new = slice(at, at + max(1, at // 100))
                if at:
                    wrong[new] = model.predict(F[new]) != y[new]
                model.partial_fit(F[new], y[new], classes=np.arange(K))
                at = new.stop
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
    "passive-aggressive": lambda: SGDClassifier(
        loss="hinge", penalty=None, learning_rate="pa1", eta0=1.0, random_state=0
    ),
    "GaussianNB": GaussianNB,
}
PEERS: dict[str, Run] = {
    **{f"River {name}, raw": river(make) for name, make in RIVER.items()},
    **{f"River {name}, φ": river(make, phi=True) for name, make in RIVER.items()},
    "River ARF, raw": river(lambda: forest.ARFClassifier(seed=0)),
    **{f"sklearn {name}, raw": sklearn(make) for name, make in SKLEARN.items()},
    **{f"sklearn {name}, φ": sklearn(make, phi=True) for name, make in SKLEARN.items()},
}


# ---------------------------------------------------------------------------------- measuring


@dataclass
class Result:
    wrong: list[Flags] = field(default_factory=list)  # a shuffle each
    seconds: float = 0.0  # CPU, of all

    @property
    def accuracies(self) -> Array:
        return np.array([100 * (1 - w.mean()) for w in self.wrong])

    def between(self, first: int, last: int) -> float:
        return 100 * (1 - float(np.mean([w[first:last].mean() for w in self.wrong])))


Results = dict[str, Result]


def timed(stream: Stream, run: Run, seed: int) -> tuple[Flags, float]:
    X, y = stream.shuffled(seed)
    start = time.thread_time()
    return run(X, y, stream.K), time.thread_time() - start


def kept(stream: Stream, name: str, seed: int, fresh: bool) -> tuple[Flags, float]:
    """A peer's, from the file of an earlier run if there is one"""
    file = KEPT / f"{re.sub(r'[^a-zA-Z0-9φ]+', '-', f'{stream.name}-{name}')}-{seed}.npz"
    if file.exists() and not fresh:
        with np.load(file, allow_pickle=False) as data:
            return data["wrong"], float(data["seconds"])
    wrong, seconds = timed(stream, PEERS[name], seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file.with_suffix(".part.npz"), wrong=wrong, seconds=seconds)
    file.with_suffix(".part.npz").rename(file)
    return wrong, seconds


def measure(stream: Stream, results: Results, seed: int, without: list[str], fresh: bool = False) -> None:
    """One shuffle more"""
    for name in [*OURS, *PEERS]:
        too_slow = len(stream.y) > LONG and ("ARF" in name or ("sklearn" in name and seed > 0))
        if too_slow or any(part in name for part in without):
            continue
        wrong, seconds = kept(stream, name, seed, fresh) if name in PEERS else timed(stream, OURS[name], seed)
        result = results.setdefault(name, Result())
        result.wrong.append(wrong)
        result.seconds += seconds


# ---------------------------------------------------------------------------------- tables and curves

DEFAULT, ALARMING, *_ = OURS
LEAST = {"Olsson": 90.0, "CIFAR10 test": 91.3, "Fashion-MNIST test": 88.8}


def table(stream: Stream, results: Results) -> Iterator[str]:
    n, d = stream.X.shape
    yield f"\n{stream.name}: {n:,} points, d = {d}, {stream.K} classes\n"
    yield f"{'':<36}{'n':>2}{'accuracy':>10}{'±':>6}{'last 1,000':>12}{'points/s':>12}"
    for name, result in results.items():
        a, rate = result.accuracies, n * len(result.wrong) / result.seconds
        yield f"{name:<36}{len(a):>2}{a.mean():>10.2f}{a.std():>6.2f}{result.between(n - 1000, n):>12.2f}{rate:>12,.0f}"
    if stream.drift is not None:
        for name in (DEFAULT, ALARMING):
            before, after = (results[name].between(at - 1000, at) for at in (stream.drift, stream.drift + 2000))
            yield f"{name}: {before:.2f} % in the 1,000 points before the drift, {after:.2f} % in 1,000 to 2,000 after"


def best_peer(results: Results) -> str | None:
    return max((name for name in results if name in PEERS), key=lambda p: results[p].accuracies.mean(), default=None)


def verdict(everything: dict[str, tuple[Stream, Results]]) -> Iterator[str]:
    """The default beside the best peer of each stream, on the shuffles that both have seen"""
    yield f"\n\n{'The default session':<36}{'':>2}{'accuracy':>10}{'best peer':>11}{'':>8}   which, and what was missed"
    ahead = 0
    for title, (stream, results) in everything.items():
        peer = best_peer(results)
        mine = results[DEFAULT].accuracies
        missed = mine.mean() < LEAST.get(title, 0.0)
        words = [f"below {LEAST[title]}"] if missed else []
        if stream.drift is not None:
            at, default = stream.drift, results[DEFAULT]
            if default.between(at + 1000, at + 2000) < default.between(at - 1000, at) - 2:
                words.append("not back after the drift")
        if peer is None:
            yield f"{title:<36}{len(mine):>2}{mine.mean():>10.2f}   {', '.join(words)}"
            continue
        theirs = results[peer].accuracies
        both = min(len(mine), len(theirs))
        difference = mine[:both].mean() - theirs[:both].mean()
        ahead += difference > 0
        if difference < (-2 if title == "Olsson" else -1):
            words.append("MISSED")
        yield (
            f"{title:<36}{both:>2}{mine[:both].mean():>10.2f}{theirs[:both].mean():>11.2f}{difference:>+8.2f}   "
            f"{', '.join([peer, *words])}"
        )
    yield f"Ahead of the best peer on {ahead} of {len(everything)} streams."


SHOWN = {
    DEFAULT: "C3",
    ALARMING: "C1",
    "wrapped normals": "C2",
    "0.1: perceptron at 0": "0.4",
    "River softmax, scaled, raw": "C0",
    "River GaussianNB, raw": "C9",
    "River Hoeffding tree, raw": "C4",
    "River ARF, raw": "C5",
}


def draw(everything: dict[str, tuple[Stream, Results]], picture: Path) -> None:
    """The accuracy so far, the mean of the shuffles; where there is drift, that of 200 points"""
    columns = min(3, len(everything))
    rows = -(-len(everything) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.2 * rows), layout="constrained", dpi=110)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (title, (stream, results)) in zip(grid, everything.items(), strict=False):
        for name, color in SHOWN.items():
            if name in results:
                right = 100 * (1 - np.mean(results[name].wrong, axis=0))
                t = np.arange(1, len(right) + 1)
                if stream.drift is None:
                    axes.plot(t, np.cumsum(right) / t, color=color, label=name, linewidth=1.4)
                else:
                    axes.plot(t[199:], np.convolve(right, np.full(200, 1 / 200), "valid"), color=color, linewidth=1.4)
        if stream.drift is None:
            axes.set_xscale("log")
            axes.set_xlim(10, None)
        axes.set_ylim(0, 100)
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.3)
    for axes in grid[len(everything) :]:
        axes.set_axis_off()
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.supylabel("accuracy so far (drift: of the newest 200 points), %")
    picture.parent.mkdir(exist_ok=True)
    figure.savefig(picture)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_streams")
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--streams", nargs="*", help="only those whose names begin so")
    parser.add_argument("--shuffles", type=int, default=SHUFFLES)
    parser.add_argument("--without", nargs="*", default=[], help="leave out what has this in its name, as ARF")
    parser.add_argument("--fresh", action="store_true", help="run the peers again that an earlier run has kept")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder to write to")
    asked = parser.parse_args([] if words is None else words)
    everything: dict[str, tuple[Stream, Results]] = {
        stream.name: (stream, {})
        for stream in streams(data_folder(asked.folder))
        if not asked.streams or any(stream.name.startswith(name) for name in asked.streams)
    }
    lines = list[str]()
    for seed in range(asked.shuffles):
        for stream, results in everything.values():
            measure(stream, results, seed, asked.without, asked.fresh)
            begun = {title: each for title, each in everything.items() if each[1]}
            lines = [line for each in begun.values() for line in table(*each)] + list(verdict(begun))
            (asked.results / "real_streams.txt").write_text("\n".join(lines).lstrip() + "\n")
            print(f"shuffle {seed + 1}: {stream.name}", file=sys.stderr, flush=True)
        draw(everything, asked.results / "real_streams.png")
    print("\n".join(lines).lstrip())


if __name__ == "__main__":
    main(sys.argv[1:])
