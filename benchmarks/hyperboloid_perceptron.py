"""The paper's comparison on the hyperboloid: three perceptrons, stopped at 100 % accuracy or at a number of updates.

For each of 100 margins ε ∈ [0.1, 1], five sets of N = 5,000 points in L², less those within ε of a random H_{w*}:

    Poincaré     ours, given a reference point p on the true hyperplane
    hyperboloid  ours, w ← w + y Hh: needs no p
    Weber et al. their Algorithm 1, as the paper quotes it

The updates are limited twice: to the 1/sinh ε that Weber et al. claim; and to the bound of the algorithm's own theorem,
(2R_p/((1−R_p²) sinh ε))² for Poincaré and (R‖w*‖/sinh ε)² for the others, R = max‖h‖. Accuracy is that of the best
w met on the way ("the best achievable results within the upper bound").

The paper does not say how it draws points and planes. Here: points uniform in the disk of radius 0.95, p uniform in the
disk of radius 3/5 of that, the normal uniform; and w* = (2q, n + 2qp), q = ⟨n,p⟩/(1−‖p‖²), has [w*,w*] = 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numba
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray

from benchmarks.paper_table1 import theorem
from benchmarks.streams import R, Stream, ball, separable
from service.geometry import Array, to_hyperboloid
from service.learners import Learner, hyperboloid, perceptron

N, TRIALS = 5_000, 5
EPSILONS = np.linspace(0.1, 1.0, 100)
PICTURE = Path(__file__).parent / "results" / "hyperboloid_perceptron.png"
NAMES = ("Poincaré", "hyperboloid", "Weber et al.")
TURNED = "Weber, sgn[w,h]"
LIMITS = ("1/sinh ε", "own theorem")


@dataclass(frozen=True)
class Run:
    accuracy: float  # of the best w met
    final: float  # accuracy of the last w
    updates: int  # made
    limit: int  # on the updates
    ill_defined: int = 0  # updates whose normalisation has no real value


def _weber(H: Array, y: NDArray[np.int8], turn: float, limit: int) -> tuple[int, int, int, int]:
    """u = w + y h if −y[w,h] < 0;  w ← u/min{1, √[u,u]},  [w,h] = −w₀h₀ + ⟨w_s,h_s⟩

    That condition makes its classifier ŷ = sgn(−[w,h]); turn = −1 turns it into sgn[w,h], the other possible reading.
    It begins at w = e₁, [w,w] = 1; from w = 0 the rule never updates. Where [u,u] ≤ 0 the root is imaginary or the
    divisor 0: there w ← u, the most generous reading (a NaN would end the run), and the update is counted.
    Returns the fewest errors met, those of the last w, the updates, and how many of them were ill-defined.
    """
    n, d = H.shape
    w = np.zeros(d)
    w[1] = 1.0
    k, ill, fewest, start = 0, 0, n, 0
    while True:
        errors, first, following = 0, n, n
        for i in range(n):
            product = -w[0] * H[i, 0]
            for m in range(1, d):
                product += w[m] * H[i, m]
            if -turn * y[i] * product < 0:
                errors += 1
                first = min(first, i)
                if i >= start:
                    following = min(following, i)
        fewest = min(fewest, errors)
        if errors == 0 or k == limit:
            return fewest, errors, k, ill
        i = following if following < n else first
        norm = 0.0
        for m in range(d):
            w[m] += y[i] * H[i, m]
            norm += w[m] * w[m] * (-1.0 if m == 0 else 1.0)
        if norm <= 0:
            ill += 1
        elif norm < 1:
            w /= math.sqrt(norm)
        k += 1
        start = i + 1


_njit: Any = numba.njit
_compiled: Callable[[Array, NDArray[np.int8], float, int], tuple[int, int, int, int]] = _njit(_weber)


def weber(stream: Stream, limit: int, turn: float = 1.0) -> Run:
    fewest, errors, k, ill = _compiled(to_hyperboloid(stream.X), stream.y, turn, limit)
    n = len(stream.y)
    return Run(1 - fewest / n, 1 - errors / n, k, limit, ill)


def ours(learner: Learner[Any], state: Any, stream: Stream, limit: int) -> Run:
    """Update by update, over the points again and again, until no error is left or the limit is reached"""
    n, i, fewest = len(stream.y), 0, len(stream.y)
    while True:
        errors = int(np.count_nonzero(learner.predict(state, stream.X) != stream.y))
        fewest = min(fewest, errors)
        if errors == 0 or state.k == limit:
            return Run(1 - fewest / n, 1 - errors / n, int(state.k), limit)
        outcome = learner.observe(state, stream.X[i:], stream.y[i:], until_change=True)
        state, i = outcome.state, (i + outcome.accepted) % n


def hyperplane(p: Array, n: Array) -> Array:
    """w* = (2q, n + 2qp), q = ⟨n,p⟩/(1−‖p‖²): [w*,h] = ⟨n,z⟩ for all points, and [w*,w*] = 1"""
    q = n @ p / (1 - p @ p)
    return np.concatenate([[2 * q], n + 2 * q * p])


def loid_theorem(stream: Stream, epsilon: float) -> float:
    """(R‖w*‖/sinh ε)², R = max‖h‖ in the Euclidean norm"""
    h, w = to_hyperboloid(stream.X), hyperplane(stream.p, stream.w)
    return float((h * h).sum(axis=1).max() * (w @ w) / math.sinh(epsilon) ** 2)


def trial(rng: np.random.Generator, epsilon: float) -> dict[tuple[str, str], Run]:
    """All three algorithms on one set of points, under both limits"""
    p_norm = float(np.linalg.norm(ball(rng, 1, 2, 3 * R / 5)))
    stream = separable(rng, N, 2, p_norm=p_norm, epsilon=epsilon)
    claimed, loid = math.ceil(1 / math.sinh(epsilon)), math.floor(loid_theorem(stream, epsilon))
    own = {"Poincaré": math.floor(theorem(p_norm, epsilon)), "hyperboloid": loid, "Weber et al.": loid, TURNED: loid}
    algorithms: dict[str, Callable[[int], Run]] = {
        "Poincaré": lambda limit: ours(perceptron, perceptron.init(stream.p), stream, limit),
        "hyperboloid": lambda limit: ours(hyperboloid, hyperboloid.init(2), stream, limit),
        "Weber et al.": lambda limit: weber(stream, limit),
        TURNED: lambda limit: weber(stream, limit, turn=-1.0),
    }
    limits = {"1/sinh ε": dict.fromkeys(own, claimed), "own theorem": own}
    return {(name, limit): algorithms[name](limits[limit][name]) for name in algorithms for limit in LIMITS}


@dataclass(frozen=True)
class Results:
    """runs[name, limit][i][t]: margin i, trial t"""

    runs: dict[tuple[str, str], list[list[Run]]]

    def mean(self, name: str, limit: str, field: str) -> Array:
        """The mean over the trials, for each margin"""
        return np.array([np.mean([getattr(run, field) for run in row]) for row in self.runs[name, limit]])

    def all(self, name: str, limit: str) -> list[Run]:
        return [run for row in self.runs[name, limit] for run in row]


def run_all(epsilons: Sequence[float]) -> Results:
    trials = [[trial(np.random.default_rng([i, t]), e) for t in range(TRIALS)] for i, e in enumerate(epsilons)]
    return Results({key: [[runs[key] for runs in row] for row in trials] for key in trials[0][0]})


# ---------------------------------------------------------------------------------- what is printed


def print_table(results: Results) -> None:
    print("Accuracy, %, mean of five trials (every eleventh margin):\n")
    print(f"{'':>6}" + "".join(f"   {'within ' + limit + ' updates':>42}" for limit in LIMITS))
    print(f"{'ε':>6}" + ("   " + "".join(f"{name:>14}" for name in NAMES)) * 2)
    for i in range(0, len(EPSILONS), 11):
        means = [[100 * results.mean(name, limit, "accuracy")[i] for name in NAMES] for limit in LIMITS]
        print(f"{EPSILONS[i]:>6.2f}" + "".join("   " + "".join(f"{mean:>14.2f}" for mean in row) for row in means))


def print_summary(results: Results) -> None:
    print("\nAll 500 runs of each: accuracy in %, best w met (mean, worst) and last w (mean); runs at 100 %; updates\n")
    print(
        f"{'limit':<13}{'algorithm':<17}{'mean':>8}{'worst':>8}{'last':>8}{'at 100 %':>10}"
        f"{'median updates':>16}{'most of limit':>15}{'ill-defined':>13}"
    )
    for limit in LIMITS:
        for name in (*NAMES, TURNED):
            runs = results.all(name, limit)
            best = 100 * np.array([run.accuracy for run in runs])
            last = 100 * np.mean([run.final for run in runs])
            updates = [run.updates for run in runs]
            print(
                f"{limit:<13}{name:<17}{best.mean():>8.2f}{best.min():>8.2f}{last:>8.2f}"
                f"{np.count_nonzero(best == 100):>10}{np.median(updates):>16,.0f}"
                f"{max(run.updates / run.limit for run in runs):>15.2%}"
                f"{sum(run.ill_defined for run in runs) / sum(updates):>13.1%}"
            )
    print(
        """
"ill-defined": the share of updates with [u,u] ≤ 0, where √[u,u] has no real value; there w ← u, not normalised.
As quoted, it cannot happen from w = e₁: an update needs y[w,h] > 0, so [u,u] = [w,w] + 2y[w,h] − 1 > 0 while [w,w] ≥ 1.
The rule still fails: adding y h rather than y Hh moves w_s away from where sgn(−[w,h]) needs it. With the classifier
turned into sgn[w,h], w_s moves right and w₀ wrong, and the normalisation breaks."""
    )


# ---------------------------------------------------------------------------------- the picture

#: Okabe and Ito's colours, told apart by every eye; and line styles, told apart without colour.
STYLE: dict[str, dict[str, Any]] = {
    "Poincaré": {"color": "#0072B2", "linestyle": "-", "linewidth": 2.4, "zorder": 4},
    "hyperboloid": {"color": "#009E73", "linestyle": (0, (4, 1.8)), "linewidth": 2.4, "zorder": 5},
    "Weber et al.": {"color": "#D55E00", "linestyle": (0, (1.2, 1.2)), "linewidth": 2.4, "zorder": 3},
}
FONT: Any = {"font.size": 10.5, "axes.titlesize": 11.5, "axes.titlelocation": "left", "axes.titlepad": 10}
SMOOTH = 9


def smooth(values: Array) -> Array:
    """The mean over SMOOTH neighbouring margins, fewer at the ends"""
    window = np.ones(SMOOTH)
    return np.convolve(values, window, "same") / np.convolve(np.ones_like(values), window, "same")


def _frame(axes: Axes, title: str, label: str) -> None:
    axes.set_title(title)
    axes.set_xlabel("margin ε")
    axes.set_ylabel(label)
    axes.set_xlim(0.1, 1.0)
    axes.set_xticks([0.1, 0.25, 0.5, 0.75, 1.0], ["0.1", "0.25", "0.5", "0.75", "1"])
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def draw_accuracy(axes: Axes, results: Results, limit: str, title: str) -> None:
    for name in NAMES:
        accuracy = 100 * results.mean(name, limit, "accuracy")
        axes.plot(EPSILONS, accuracy, color=STYLE[name]["color"], linewidth=0.8, alpha=0.3, clip_on=False)
        axes.plot(EPSILONS, smooth(accuracy), label=name, clip_on=False, **STYLE[name])
    axes.set_ylim(45, 100.6)
    _frame(axes, title, "accuracy of the best w met, %")


def draw_updates(axes: Axes, results: Results) -> None:
    """Updates made under the algorithm's own bound; the bounds as bands, from the claimed one to the proven ones"""
    for name in NAMES:
        axes.plot(EPSILONS, np.exp(smooth(np.log(results.mean(name, "own theorem", "updates")))), **STYLE[name])
    bounds = [np.exp(smooth(np.log(results.mean(name, "own theorem", "limit")))) for name in NAMES[:2]]
    axes.fill_between(EPSILONS, np.minimum(*bounds), np.maximum(*bounds), color="0.75", linewidth=0, zorder=1)
    axes.plot(EPSILONS, 1 / np.sinh(EPSILONS), color="0.35", linewidth=1.2)
    axes.set_yscale("log")
    axes.set_ylim(0.7, 1e6)
    _frame(axes, "c   Updates made in b", "updates")
    for text, x, y in (
        ("proven bounds, ∝ 1/sinh² ε\nWeber et al. runs into them", 0.45, 3.0e4),
        ("claimed: 1/sinh ε", 0.45, 3.2),
    ):
        axes.text(x, y, text, color="0.25")


def draw(results: Results) -> None:
    with mpl.rc_context(FONT):
        figure = Figure(figsize=(13.5, 4.6), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.06), dpi=160)
        left, middle, right = figure.subplots(1, 3)
        draw_accuracy(left, results, "1/sinh ε", "a   Stopped after the claimed 1/sinh ε updates")
        draw_accuracy(middle, results, "own theorem", "b   Stopped at its own theorem's bound")
        draw_updates(right, results)
        figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
        note = f"Thin: mean of {TRIALS} trials, {len(EPSILONS)} margins. Thick: running mean over {SMOOTH} margins."
        figure.supxlabel(note, fontsize=9, color="0.35")
        PICTURE.parent.mkdir(exist_ok=True)
        figure.savefig(PICTURE)


def main() -> None:
    print("Three perceptrons in L²: the best accuracy within a limited number of updates.")
    print(
        f"N = {N:,} points before removal, {len(EPSILONS)} margins in [0.1, 1], {TRIALS} trials each; points uniform in"
    )
    print("the disk of radius 0.95. Poincaré is given p on the true hyperplane; the others need none.\n")
    results = run_all(EPSILONS.tolist())
    print_table(results)
    print_summary(results)
    draw(results)
    print(f"\nPicture: benchmarks/results/{PICTURE.name}")


if __name__ == "__main__":
    main()
