"""Table I of the paper: updates of the perceptron and the second-order perceptron until a pass is without error.

(N, d) = (10⁴, 10); points uniform in the ball of radius R = 0.95, labelled by H_{w,p}, less those within ε of it;
‖p‖ ∈ {R/5, 3R/5}, the direction of w uniform; 20 runs; the points in the same order in every pass; a = 0.

"Uniform" is read as uniform in the Euclidean volume, r = R·U^(1/d), and N as the number before the removal. That is
what reproduces the table, and what the authors' published code does; r = R·U gives only a fourth to two thirds of the
paper's first-order counts. Their code departs from the paper in two ways: it counts a score of 0 as a mistake, and it
begins the second order with S = (z_N), ξ = y₁z₁, uncounted. On the same data that changes the mean by up to 15 % (R/5,
ε = 0.1: 88 where ours gives 102 and the paper 82). Here sgn(0) = +1, and S and ξ begin empty.

The number of updates has a heavy tail at small ε, so a mean of 20 runs is a rough number. How rough is measured: from
MORE runs, the interval that holds 95 % of the means of 20. And the runs are repeated on the authors' own points: their
code seeds the 20 runs 1 … 20, so points and w are known; only the direction of p, one for the 20 runs, is not seeded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.streams import R, Stream, direction, separable
from service.geometry import Array, signed_distance
from service.learners import Learner, perceptron, second_order

N, D = 10_000, 10
EPSILONS = (1.0, 0.1, 0.01, 0.001)
P_NORMS = {"R/5": R / 5, "3R/5": 3 * R / 5}
RUNS, MORE = 20, 60
WITHIN = {"perceptron": 0.25, "second order": 0.40}

#: (‖p‖, learner) → mean and maximum as printed, a pair for each ε
PAPER: dict[tuple[str, str], Sequence[tuple[float, float]]] = {
    ("R/5", "perceptron"): ((51, 65), (1495, 2495), (1.96e4, 3.38e4), (1.34e5, 3.56e5)),
    ("R/5", "second order"): ((26, 34), (82, 124), (342, 548), (818, 1505)),
    ("3R/5", "perceptron"): ((82, 138), (1158, 2240), (1.68e4, 6.65e4), (1.46e5, 7.68e5)),
    ("3R/5", "second order"): ((29, 41), (101, 159), (340, 748), (545, 986)),
}
PAPER_THEOREM = {"R/5": (594, 81_749, 8.2e6, 8.2e8), "3R/5": (3670, 5.05e5, 5.07e7, 5.07e9)}


@dataclass(frozen=True)
class Cell:
    """The updates of MORE runs of both learners, for one ‖p‖ and one ε; the first RUNS make the table."""

    p_name: str
    epsilon: float
    updates: dict[str, Array]
    authors: dict[str, Array]  # the same, of RUNS runs on the authors' points

    def paper(self, learner: str) -> tuple[float, float]:
        return PAPER[self.p_name, learner][EPSILONS.index(self.epsilon)]

    def ratio(self, learner: str) -> float:
        return float(self.updates[learner][:RUNS].mean() / self.paper(learner)[0])

    def authors_ratio(self, learner: str) -> float:
        return float(self.authors[learner].mean() / self.paper(learner)[0])


def theorem(p_norm: float, epsilon: float) -> float:
    """(2R_p/((1−R_p²) sinh ε))²,  R_p = (‖p‖+R)/(1+‖p‖R)"""
    R_p = (p_norm + R) / (1 + p_norm * R)
    return float((2 * R_p / (1 - R_p**2) / np.sinh(epsilon)) ** 2)


def updates_until_clean(learner: Learner[Any], state: Any, stream: Stream) -> int:
    """Pass over the points until a pass changes nothing; how many updates that took."""
    while True:
        outcome = learner.observe(state, stream.X, stream.y)
        state = outcome.state
        if not outcome.changed.any():
            return int(state.k)


def our_stream(p_name: str, epsilon: float, seed: int) -> Stream:
    rng = np.random.default_rng([seed, EPSILONS.index(epsilon), list(P_NORMS).index(p_name)])
    return separable(rng, N, D, p_norm=P_NORMS[p_name], epsilon=epsilon)


def authors_stream(p_name: str, epsilon: float, seed: int) -> Stream:
    """The points and w of the authors' run: drawn in their order from NumPy's old generator, seeded 1 … 20 as theirs"""
    rng = np.random.RandomState(seed + 1)
    g, r = rng.randn(D, N), R * rng.rand(N) ** (1 / D)
    X, w = np.ascontiguousarray((g * r / np.linalg.norm(g, axis=0)).T), rng.randn(D)
    p = P_NORMS[p_name] * direction(np.random.default_rng([EPSILONS.index(epsilon), list(P_NORMS).index(p_name)]), D)
    distance = signed_distance(p, w, X)
    keep = np.abs(distance) >= epsilon
    return Stream(X[keep], np.where(distance[keep] > 0, np.int8(1), np.int8(-1)), p, w)


def one_run(stream: Stream) -> tuple[int, int]:
    """The updates of the perceptron and of the second order"""
    return (
        updates_until_clean(perceptron, perceptron.init(stream.p), stream),
        updates_until_clean(second_order, second_order.init(stream.p, a=0.0), stream),
    )


def run_cell(p_name: str, epsilon: float, pool: ThreadPoolExecutor) -> Cell:
    """The loops hold no lock, so threads run side by side; a run depends on its seed alone."""

    def updates(stream: Callable[[str, float, int], Stream], runs: int) -> dict[str, Array]:
        counts = list(pool.map(lambda seed: one_run(stream(p_name, epsilon, seed)), range(runs)))
        return dict(zip(WITHIN, np.array(counts, dtype=np.float64).T, strict=True))

    return Cell(p_name, epsilon, updates(our_stream, MORE), updates(authors_stream, RUNS))


def spread_of_means(counts: Array, n: int = RUNS, draws: int = 20_000) -> tuple[float, float]:
    """Where 95 % of the means of n runs lie, resampled from the runs made"""
    rng = np.random.default_rng(0)
    low, high = np.quantile(rng.choice(counts, size=(draws, n)).mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def _count(value: float) -> str:
    return f"{value:,.0f}" if value < 1e6 else f"{value:.2e}"


def print_learner(cells: Sequence[Cell], learner: str) -> None:
    print(f"  {learner}")
    for cell in cells:
        counts, (mean, most) = cell.updates[learner], cell.paper(learner)
        ours, authors = counts[:RUNS], cell.authors[learner]
        low, high = spread_of_means(counts)
        print(
            f"    {cell.epsilon:<6g} {_count(mean):>9} {'(' + _count(most) + ')':<10}"
            f" {_count(ours.mean()):>9} {'(' + _count(ours.max()) + ')':<10} {cell.ratio(learner):>6.2f}"
            f"   {_count(counts.mean()):>9} {counts.mean() / mean:>6.2f}"
            f"   {_count(low):>8} … {_count(high):<8} {'yes' if low <= mean <= high else 'NO':<4}"
            f" {_count(authors.mean()):>9} {'(' + _count(authors.max()) + ')':<10} {cell.authors_ratio(learner):>6.2f}"
        )


def print_theorem(cells: Sequence[Cell]) -> None:
    print("  theorem: (2R_p/((1−R_p²) sinh ε))²")
    for cell, printed in zip(cells, PAPER_THEOREM[cells[0].p_name], strict=True):
        bound = theorem(P_NORMS[cell.p_name], cell.epsilon)
        most = cell.updates["perceptron"].max()
        print(
            f"    {cell.epsilon:<6g} {_count(printed):>9} {'':<10} {_count(bound):>9} {'':<10} {bound / printed:>6.2f}"
            f"   our perceptron's most: {_count(most)}, {most / bound:.3%} of the bound"
        )


def print_verdict(cells: Sequence[Cell]) -> None:
    print("\nTarget: means of 20 runs within 25 % (perceptron) and 40 % (second order) of the paper's.")
    for learner, within in WITHIN.items():
        ratios = {f"‖p‖={cell.p_name} ε={cell.epsilon:g}": cell.ratio(learner) for cell in cells}
        print_within(learner, ratios, within)
        ratios = {name: cell.authors_ratio(learner) for name, cell in zip(ratios, cells, strict=True)}
        print_within(f"{learner}, authors' points", ratios, within)


def print_within(name: str, ratios: dict[str, float], within: float) -> None:
    outside = [f"{where} (×{ratio:.2f})" for where, ratio in ratios.items() if abs(ratio - 1) > within]
    print(f"  {name}: {len(ratios) - len(outside)} of {len(ratios)} within" + "; outside: " * bool(outside), end="")
    print(", ".join(outside))


def print_notes() -> None:
    print(
        """
Why a mean can differ: (1) Chance: the tail is heavy at small ε, where the paper's own largest run alone makes a fourth
of its mean (3R/5, ε = 0.001); the authors' 20 sets of points serve every cell, so their deviations go together. (2) The
authors' second order begins with S = (z_N), ξ = y₁z₁, uncounted, and counts a score of 0 as a mistake: on the same data
up to 15 % fewer updates (R/5, ε = 0.1: 88 for 102). (3) Not the sampling: with r = R·U in place of r = R·U^(1/d) the
first-order means are 0.24 to 0.65 of the paper's."""
    )


def main() -> None:
    print(f"Table I: updates until a pass is without error. N = {N:,} before removal, d = {D}, R = {R}, a = 0.")
    print("Points uniform in the Euclidean volume of the ball (r = R·U^(1/d)), the same order in every pass.")
    print(f"Mean (max) over {RUNS} runs; then the mean of {MORE} runs, the interval of 95 % of the means of {RUNS}")
    print("resampled from them, and whether the paper's mean lies in it; then mean (max) on the authors' points.\n")
    cells: list[Cell] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for p_name in P_NORMS:
            row = [run_cell(p_name, epsilon, pool) for epsilon in EPSILONS]
            print(f"‖p‖ = {p_name}")
            print(
                f"    {'ε':<6} {'paper':>9} {'':<10} {'ours':>9} {'':<10} {'ratio':>6}"
                f"   {f'{MORE} runs':>9} {'ratio':>6}   {'95 % of means of 20':<19} in?"
                f"  {'their points':>12} {'':<7} {'ratio':>6}"
            )
            for learner in ("second order", "perceptron"):
                print_learner(row, learner)
            print_theorem(row)
            cells += row
    print_verdict(cells)
    print_notes()


if __name__ == "__main__":
    main()
