"""Table II of the paper: test accuracy and time on the embeddings published with its code.

    python -m benchmarks.paper_table2 /path/to/data

The folder holds {olsson,cifar,fashion-mnist}_poincare_embedding.npz (x_train, y_train, x_test, y_test) and
{…}_reference_points_gt.npy, the authors' reference points. K classes are K classifiers, class against rest, C = 5,
Platt scaling on the training scores, argmax of the probabilities. What is learned, and what is chosen (by cv), comes
from the training points alone.

    Poincaré SVM       v = log_p(x), squared hinge (what the paper's experiments ran) and hinge (what its text says)
    softmax            multinomial logistic regression on hyperboloid coordinates and a constant: no p
    Euclidean SVM      LIBLINEAR on x itself, without a bias, as the paper compares it, and with one
    hyperboloid SVM    Cho et al. (2019): min ½[w,w] + C Σ max(0, asinh 1 − asinh(y [w,h])) over spacelike w. Not
                       convex; projected gradient from LIBLINEAR's w on h, as in the code they published

A time is the least CPU time of REPEATS runs, everything from points to calibrated classifiers; the test is left out.
Learning p is in it where p is learned. The authors' code is not run here: its times, on the wall clock of this machine,
were taken earlier (33 and 44 s with p given, some 200 s more to learn p).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import LinearSVC

from service.batch import calibration, softmax, svm
from service.batch import reference_point as reference
from service.geometry import Array, to_hyperboloid

C = 5.0
REPEATS = 3
SPLITS = 20
STEPS = 200  # of Cho et al.'s projected gradient

Labels = NDArray[np.int_]
#: points → a row of class probabilities each
Predict = Callable[[Array], Array]
#: training points, their classes, how many there are → a classifier, and a word on it
Train = Callable[[Array, Labels, int], tuple[Predict, str]]
#: a binary learner: points, labels ±1 → how to score points
Score = Callable[[Array], Array]


@dataclass(frozen=True)
class Data:
    name: str
    X: Array
    k: Labels
    X_test: Array
    k_test: Labels
    p: Array  # the authors' reference points

    @property
    def K(self) -> int:
        return int(self.k.max()) + 1


@dataclass(frozen=True)
class Row:
    name: str
    train: Train
    paper: tuple[str, str, str] = ("", "", "")
    repeats: int = REPEATS


FILES = {"Olsson": "olsson", "CIFAR10": "cifar", "Fashion-MNIST": "fashion-mnist"}
GIVEN, LEARNED, SOFTMAX = "Poincaré SVM, authors' p", "Poincaré SVM, p by cv", "softmax"
EUCLIDEAN, CHO = "Euclidean SVM with bias", "hyperboloid SVM (Cho et al.)"
#: accuracies to reach, in the order of FILES; with the authors' p to one test point
TARGETS = {GIVEN: (89.77, 91.84, 87.82), LEARNED: (88.6, 91.8, 89.4), SOFTMAX: (92.0, 91.9, 89.8)}
#: seconds of the authors' code on this machine: p given, and to learn p on top; and the ratios to reach
AUTHORS_FIT = {"CIFAR10": 33.0, "Fashion-MNIST": 44.0}
AUTHORS_LEARN = 200.0
RATIO_GIVEN, RATIO_HULL = 30, 100
HULL = "Poincaré SVM, p by hull"


def load(folder: Path, name: str) -> Data:
    with np.load(folder / f"{FILES[name]}_poincare_embedding.npz") as file:
        X, k, X_test, k_test = (file[part] for part in ("x_train", "y_train", "x_test", "y_test"))
    p = np.load(folder / f"{FILES[name]}_reference_points_gt.npy")
    return Data(name, X, k.astype(np.int_), X_test, k_test.astype(np.int_), p)


# ---- classifiers ----------------------------------------------------------------------------------------------


def one_vs_rest(X: Array, k: Labels, K: int, fit: Callable[[int, Labels], Score]) -> Predict:
    """`fit(class, y)` gives the score of one class; Platt scaling makes them probabilities"""
    classifiers: list[tuple[Score, calibration.Platt]] = []
    for label in range(K):
        y = np.where(k == label, 1, -1)
        score = fit(label, y)
        classifiers.append((score, calibration.fit(score(X), y)))
    return lambda Z: calibration.normalise(
        np.column_stack([calibration.probability(platt, score(Z)) for score, platt in classifiers])
    )


def poincare(points: Sequence[Array], loss: str, X: Array, k: Labels, K: int) -> Predict:
    def fit(label: int, y: Labels) -> Score:
        w = svm.fit(svm.features(X, points[label], "tangent"), y, loss=loss, C=C).w
        return lambda Z: np.asarray(svm.features(Z, points[label], "tangent") @ w)

    return one_vs_rest(X, k, K, fit)


def given_p(p: Array, loss: str, X: Array, k: Labels, K: int) -> tuple[Predict, str]:
    return poincare(list(p), loss, X, k, K), ""


def learned_p(method: str, X: Array, k: Labels, K: int) -> tuple[Predict, str]:
    learned = reference.learn_each(X, k, K, method)
    predict = poincare([one.p for one in learned], "squared_hinge", X, k, K)
    if method != "cv":
        return predict, ""
    accuracy = learned[0].report["accuracy"]
    seen = ", ".join(f"{name} {100 * value:.1f}" for name, value in accuracy.items())
    return predict, f"took {max(accuracy, key=accuracy.__getitem__)}; saw {seen}"


def with_softmax(X: Array, k: Labels, K: int) -> tuple[Predict, str]:
    W = softmax.fit(softmax.features(X), k, classes=K, C=C).W
    return lambda Z: softmax.probabilities(W, softmax.features(Z)), ""


def euclidean(bias: bool, X: Array, k: Labels, K: int) -> tuple[Predict, str]:
    def fit(_: int, y: Labels) -> Score:
        machine: Score = LinearSVC(C=C, fit_intercept=bias, dual=False).fit(X, y).decision_function
        return machine

    return one_vs_rest(X, k, K, fit), ""


def hyperboloid(X: Array, k: Labels, K: int) -> tuple[Predict, str]:
    h = to_hyperboloid(X)

    def fit(_: int, y: Labels) -> Score:
        n = cho(h, y)
        return lambda Z: np.asarray(to_hyperboloid(Z) @ n)

    return one_vs_rest(X, k, K, fit), ""


def cho(h: Array, y: Labels) -> Array:
    """min f(w) = ½[w,w] + C Σ max(0, asinh 1 − asinh(y [w,h])), [w,w] > 0; returns n with ⟨n,h⟩ = [w,h]

    In n = (−w₀, w_s) the bracket is Euclidean and [w,w] = ‖n_s‖² − n₀². A step is halved until f decreases.
    """
    flip = np.append(-1.0, np.ones(h.shape[1] - 1))
    b = h * y[:, None]

    def f(n: Array) -> float:
        return float((n * flip) @ n / 2 + C * np.maximum(0, math.asinh(1) - np.arcsinh(b @ n)).sum())

    n = spacelike(LinearSVC(C=C, fit_intercept=False, dual=False).fit(h, y).coef_[0])
    now, step = f(n), 1e-3
    for _ in range(STEPS):
        z = b @ n
        missed = z < 1
        gradient = n * flip - C * (1 / np.sqrt(1 + z[missed] ** 2)) @ b[missed]
        while (after := f(to := spacelike(n - step * gradient))) >= now and step > 1e-15:
            step /= 2
        if after >= now:
            break
        n, now, step = to, after, 2 * step
    return n


def spacelike(n: Array, least: float = 1e-4) -> Array:
    """The nearest point of the cone ‖n_s‖ ≥ |n₀|, with n_s drawn out until ‖n_s‖² − n₀² = `least`"""
    time_like, length = abs(n[0]), float(np.linalg.norm(n[1:]))
    if length**2 - time_like**2 >= least:
        return n
    half = (time_like + length) / 2
    return np.append(math.copysign(half, n[0]), n[1:] / length * math.sqrt(half**2 + least))


def rows(p: Array) -> list[Row]:
    learned = [Row(f"Poincaré SVM, p by {method}", partial(learned_p, method)) for method in reference.METHODS]
    return [
        Row(GIVEN, partial(given_p, p, "squared_hinge"), ("89.77", "91.84", "87.82")),
        Row("  the same, hinge", partial(given_p, p, "hinge")),
        *learned,
        Row(LEARNED, partial(learned_p, "cv"), repeats=1),
        Row(SOFTMAX, with_softmax),
        Row("Euclidean SVM without bias", partial(euclidean, False), ("71.59", "47.66", "39.91")),
        Row(EUCLIDEAN, partial(euclidean, True)),
        Row(CHO, hyperboloid, ("71.97", "89.87", "76.78"), repeats=1),
    ]


# ---- running and printing -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    right: int
    of: int
    seconds: float
    note: str

    @property
    def accuracy(self) -> float:
        return 100 * self.right / self.of


def run(row: Row, data: Data) -> Result:
    seconds = math.inf
    for _ in range(row.repeats):
        start = time.process_time()
        predict, note = row.train(data.X, data.k, data.K)
        seconds = min(seconds, time.process_time() - start)
    right = int((predict(data.X_test).argmax(axis=1) == data.k_test).sum())
    return Result(right, len(data.k_test), seconds, note)


def table(data: Data) -> dict[str, Result]:
    print(f"{data.name}: {len(data.X):,} training points, {len(data.X_test):,} test points, {data.K} classes")
    print(f"    {'':<32} {'test %':>7} {'paper':>7} {'seconds':>9}")
    results = {}
    for row in rows(data.p):
        result = results[row.name] = run(row, data)
        paper = row.paper[list(FILES).index(data.name)]
        print(
            f"    {row.name:<32} {result.accuracy:>7.2f} {paper:>7} {result.seconds:>9.3f}  {result.note}".rstrip(),
            flush=True,
        )
    print()
    return results


def splits(data: Data) -> None:
    """Olsson's points split anew, as many for training as before, each class in proportion"""
    X, k = np.concatenate([data.X, data.X_test]), np.concatenate([data.k, data.k_test])
    accuracy: dict[str, list[float]] = {}
    for seed in range(SPLITS):
        rng = np.random.default_rng(seed)
        place = np.empty(len(k))
        for label in range(data.K):
            mine = np.flatnonzero(k == label)
            place[rng.permutation(mine)] = (np.arange(len(mine)) + rng.uniform()) / len(mine)
        order = np.argsort(place, kind="stable")
        train, test = order[: len(data.k)], order[len(data.k) :]
        split = Data(data.name, X[train], k[train], X[test], k[test], data.p)
        for row in rows(data.p):
            predict, _ = row.train(split.X, split.k, split.K)
            right = predict(split.X_test).argmax(axis=1) == split.k_test
            accuracy.setdefault(row.name, []).append(100 * float(right.mean()))
    print(f"{data.name}, {SPLITS} random splits of the same size, classes in proportion: mean and deviation of test %")
    for name, values in accuracy.items():
        print(f"    {name:<32} {np.mean(values):>7.2f} ± {np.std(values):.2f}")
    print("    (the authors' p were learned on their own split: here they have seen some of the test points)\n")


def verdicts(results: dict[str, dict[str, Result]]) -> None:
    print("Targets")
    for name, targets in TARGETS.items():
        for (data, of), target in zip(results.items(), targets, strict=True):
            result = of[name]
            off = round(target * result.of / 100) - result.right  # in test points
            reached = abs(off) <= 1 if name == GIVEN else result.accuracy >= target
            goal = f"{target} ± a test point" if name == GIVEN else f"≥ {target}"
            print(f"    {name:<32} {data:<14} {result.accuracy:>6.2f}  {goal:<22} {'yes' if reached else 'NO'}")
    for data, authors in AUTHORS_FIT.items():
        for name, seconds, wanted in ((GIVEN, authors, RATIO_GIVEN), (HULL, authors + AUTHORS_LEARN, RATIO_HULL)):
            ours = results[data][name].seconds
            print(
                f"    {name:<32} {data:<14} {ours:>6.2f} s, authors' code {seconds:.0f} s: ×{seconds / ours:.0f},"
                f" wanted ≥ ×{wanted}  {'yes' if seconds / ours >= wanted else 'NO'}"
            )
    print("    (ours in CPU seconds; the authors' code was timed earlier on this machine, on the wall clock)")


def notes(results: dict[str, dict[str, Result]]) -> None:
    def accuracies(name: str) -> str:
        return " / ".join(f"{of[name].accuracy:.1f}" for of in results.values())

    print(
        f"""
What the comparison shows
- The paper's gains of 40 points over the Euclidean SVM on the two image sets come from a Euclidean SVM without a bias:
  each of its lines had to pass through 0, while each Poincaré classifier turned about a p of its own. With a bias it
  reaches {accuracies(EUCLIDEAN)} % beside {accuracies(GIVEN)} %: level on CIFAR10, behind on
  Fashion-MNIST, far behind on Olsson. That is the gain of the geometry.
- Where p lies matters as much. On Fashion-MNIST the classes overlap, and the foot on the Lorentz hyperplane is 3 points
  better than the paper's rule; on Olsson the rule is better. Cross-validation on the training points tells which.
- Softmax on hyperboloid coordinates needs no p and is convex: {accuracies(SOFTMAX)} %, the best here or within a
  test point of it, in one fit.
- The hyperboloid SVM of Cho et al., started as in their code, does better than the paper says: {accuracies(CHO)} %.
- Olsson has {results["Olsson"][GIVEN].of} test points, 1.1 % each: read its 20 splits rather than the one.

Not compared: mini-ImageNet, the paper's fourth set. Its embedding (512 dimensions) is not published with the code."""
    )


def main(folder: str | None = None) -> None:
    if folder is None:
        sys.exit("usage: python -m benchmarks.paper_table2 /path/to/data (the embeddings published with the paper)")
    print(f"Table II: test accuracy and CPU seconds to train, K classifiers one against the rest, C = {C:g}.\n")
    data = {name: load(Path(folder), name) for name in FILES}
    results = {name: table(one) for name, one in data.items()}
    splits(data["Olsson"])
    verdicts(results)
    notes(results)


if __name__ == "__main__":
    main(*sys.argv[1:2])
