"""The learners in process: against River, against the paper's second-order form, and over a long stream.

Within a table everything runs interleaved, in shuffled rounds in one process; a rate is the median over the rounds, in
CPU time of the thread that works. Each learner starts from nothing and passes once over the stream: N points before
removal, uniform in the ball, ε = 0.1, ‖p‖ = R/5; as they are (separable), or with 30 % of the labels flipped.

    River          linear_model.Perceptron, predict_one then learn_one, on dicts of the lifted points z made beforehand:
                   the same problem that our perceptron solves, and the same protocol
    River, K = 5   multiclass.OneVsRestClassifier of it, the peer of one_vs_rest; points in five separable blobs
    paper's form   w = (S_t S_tᵀ)⁺ξ at every point by np.linalg.pinv, on the first points of the stream, z given

BLAS runs on one thread. One by one, our learners get the first SINGLES points. The strategic learner (budget 0.1) gets
the same points as the others: nobody moves.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from river import linear_model, multiclass

from benchmarks.streams import R, blobs, direction, flipped, labelled, reassigned, separable
from service.geometry import Array, lift
from service.learners import Learner, hyperboloid, one_vs_rest, perceptron, second_order, strategic

N, K, BLOCK, SINGLES, PREFIX = 20_000, 5, 1_000, 4_000, 200
DIMENSIONS = (2, 10, 100)
ROUNDS = 5
EPSILON, NOISE, BUDGET = 0.1, 0.3, 0.1
LONG = 1_000_000
PAPER_FORMS = ("paper's form", "paper's form, hermitian")

#: (peer, d) → at least so many times its rate, on the separable and on the flipped stream
TARGETS = {("River", 10): (20, 10), ("paper's form", 100): (500, 50)}


@dataclass(frozen=True)
class Task:
    """Something to time: `run` passes over `points` points."""

    points: int
    run: Callable[[], Any]


@dataclass(frozen=True)
class Contender:
    """One of our learners on its stream."""

    name: str
    learner: Learner[Any]
    state: Any
    X: Array
    y: NDArray[Any]
    peer: str

    def observe(self, points: int, block: int) -> Any:
        """The state after so many points, fed in blocks"""
        state = self.state
        for i in range(0, points, block):
            state = self.learner.observe(state, self.X[i : i + block], self.y[i : i + block]).state
        return state

    def share_of_updates(self) -> float:
        """Points that changed the classifier, of all"""
        return float(self.learner.observe(self.state, self.X, self.y).changed.mean())


def rates(tasks: dict[str, Task], rounds: int = ROUNDS) -> dict[str, float]:
    """Points a second of CPU: the median over shuffled rounds"""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    order, shuffle = list(tasks), random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            seconds[name].append(cpu_seconds(tasks[name].run))
    return {name: task.points / statistics.median(seconds[name]) for name, task in tasks.items()}


def cpu_seconds(run: Callable[[], Any], least: float = 0.02) -> float:
    """CPU seconds of one run, of as many as take at least so long together"""
    count, start = 0, time.thread_time()
    while True:
        run()
        count += 1
        spent = time.thread_time() - start
        if spent >= least:
            return spent / count


# ---------------------------------------------------------------------------------- the peers


def river_run(model: Any, rows: Sequence[dict[int, float]], labels: Sequence[Any]) -> None:
    """As River's users do: predict, then learn"""
    for x, y in zip(rows, labels, strict=True):
        model.predict_one(x)
        model.learn_one(x, y)


def dicts(Z: Array) -> list[dict[int, float]]:
    return [dict(enumerate(row)) for row in Z.tolist()]


def paper_form(Z: Array, y: NDArray[np.int8], *, hermitian: bool = False) -> int:
    """w = (S Sᵀ + z zᵀ)⁺ξ, ŷ = sgn⟨w,z⟩; on a mistake S gains z and ξ gains y z. S Sᵀ is kept, not multiplied anew."""
    d, k = Z.shape[1], 0
    SS, xi = np.zeros((d, d)), np.zeros(d)
    for z, label in zip(Z, y, strict=True):
        zz = np.outer(z, z)
        w = np.linalg.pinv(SS + zz, hermitian=hermitian) @ xi
        if (w @ z >= 0) != (label > 0):
            SS += zz
            xi += label * z
            k += 1
    return k


# ---------------------------------------------------------------------------------- one table


def contenders(d: int, noise: float) -> list[Contender]:
    """Our learners, each with its stream; the same points in every one of the binary ones"""
    rng = np.random.default_rng([d, 7])
    stream = separable(rng, N, d, p_norm=R / 5, epsilon=EPSILON)
    X, y, p = stream.X, flipped(rng, stream.y, noise), stream.p
    many = blobs(rng, N, d, K)
    classes = reassigned(rng, many.y, K, noise)
    members = one_vs_rest.init([perceptron.init(p_j) for p_j in many.P])
    return [
        Contender("perceptron", perceptron, perceptron.init(p), X, y, "River"),
        Contender("second order, a = 1", second_order, second_order.init(p, a=1.0), X, y, "River"),
        Contender("second order, a = 0", second_order, second_order.init(p, a=0.0), X, y, "River"),
        Contender("strategic", strategic, strategic.init(p, budget=BUDGET), X, y, "River"),
        Contender("hyperboloid", hyperboloid, hyperboloid.init(d), X, y, "River"),
        Contender("one vs rest, K = 5", one_vs_rest, members, many.X, classes, "River, K = 5"),
    ]


def peers(ours: Sequence[Contender]) -> dict[str, Task]:
    """River on what our perceptrons get, and the paper's form on the first points"""
    binary, many = ours[0], ours[-1]
    Z = lift(binary.state.p, binary.X)
    rows, signs = dicts(Z), (binary.y > 0).tolist()
    class_rows, classes = dicts(lift(np.zeros(Z.shape[1]), many.X)), many.y.tolist()
    Z, y = Z[:PREFIX], binary.y[:PREFIX]
    return {
        "River": Task(len(rows), lambda: river_run(linear_model.Perceptron(), rows, signs)),
        "River, K = 5": Task(
            len(class_rows),
            lambda: river_run(multiclass.OneVsRestClassifier(linear_model.Perceptron()), class_rows, classes),
        ),
        "paper's form": Task(PREFIX, lambda: paper_form(Z, y)),
        "paper's form, hermitian": Task(PREFIX, lambda: paper_form(Z, y, hermitian=True)),
    }


def our_tasks(ours: Sequence[Contender]) -> dict[str, Task]:
    """In blocks and one by one, and the second order on the same first points as the paper's form"""
    tasks = {"prefix": Task(PREFIX, partial(ours[2].observe, PREFIX, PREFIX))}
    for c in ours:
        tasks[c.name] = Task(len(c.y), partial(c.observe, len(c.y), BLOCK))
        tasks[f"{c.name}, single"] = Task(SINGLES, partial(c.observe, SINGLES, 1))
    return tasks


@dataclass(frozen=True)
class Table:
    d: int
    noisy: bool
    ours: Sequence[Contender]
    rates: dict[str, float]

    def ratio(self, name: str, peer: str) -> float:
        return self.rates[name] / self.rates[peer]


def measure(d: int, noisy: bool) -> Table:
    ours = contenders(d, NOISE if noisy else 0.0)
    return Table(d, noisy, ours, rates(our_tasks(ours) | peers(ours)))


def kind(noisy: bool) -> str:
    return f"{NOISE:.0%} flipped" if noisy else "separable"


def print_table(table: Table) -> None:
    print(f"\nd = {table.d}, {kind(table.noisy)}, {len(table.ours[0].y):,} points, in points/s of CPU\n")
    print(f"{'':<24}{'updates':>8}   {f'blocks of {BLOCK:,}':>14}{'× River':>9}   {'one by one':>12}{'× River':>9}")
    for c in table.ours:
        blocks, single = c.name, f"{c.name}, single"
        print(
            f"{c.name:<24}{c.share_of_updates():>8.1%}"
            f"   {table.rates[blocks]:>14,.0f}{table.ratio(blocks, c.peer):>9.1f}"
            f"   {table.rates[single]:>12,.0f}{table.ratio(single, c.peer):>9.2f}"
        )
    for peer in ("River", "River, K = 5", *PAPER_FORMS):
        print(f"{peer:<24}{'':>8}   {'':>14}{'':>9}   {table.rates[peer]:>12,.0f}")
    whole = [table.ratio("second order, a = 0", peer) for peer in PAPER_FORMS]
    prefix = table.ratio("prefix", PAPER_FORMS[0])
    print(
        f"second order, a = 0: × paper's form {whole[0]:,.0f}, with hermitian pinv {whole[1]:,.0f};"
        f" both on the first {PREFIX} points alone {prefix:,.0f}"
    )


def print_targets(tables: Sequence[Table]) -> None:
    print("\nTargets (in blocks)\n")
    for (peer, d), least in TARGETS.items():
        for table in (table for table in tables if table.d == d):
            at_least = least[table.noisy]
            names = [c.name for c in table.ours if peer == "River" or c.name.startswith("second")]
            for c in (c for c in table.ours if c.name in names):
                against = c.peer if peer == "River" else peer
                ratio = table.ratio(c.name, against)
                met = "met" if ratio >= at_least else "NOT MET"
                print(
                    f"d = {d:<4}{kind(table.noisy):<13}{c.name:<22}× {against:<14} ≥ {at_least:<5}{ratio:>8,.0f}  {met}"
                )


# ---------------------------------------------------------------------------------- a long stream


@dataclass(frozen=True)
class LongRun:
    points: int
    updates: int
    seconds: Array  # CPU, of each tenth
    points_each: Array
    updates_each: Array
    difference: float  # ‖w − w'‖/‖w'‖, w' = (aI + A)⁻¹ξ solved afresh
    condition: float  # of aI + A


def long_run(a: float, d: int = 100, blocks: int = 100) -> LongRun:
    """A flipped stream of LONG points; beside it A = Σ z zᵀ and ξ = Σ y z over the mistakes, summed afresh"""
    rng = np.random.default_rng(11)
    p, w = R / 5 * direction(rng, d), direction(rng, d)
    state, A, xi = second_order.init(p, a=a), np.zeros((d, d)), np.zeros(d)
    seconds, points, updates = np.zeros(10), np.zeros(10), np.zeros(10)
    for i in range(blocks):
        X, y = labelled(rng, LONG // blocks, p, w)
        y, tenth = flipped(rng, y, NOISE), i * 10 // blocks
        start = time.thread_time()
        outcome = second_order.observe(state, X, y)
        seconds[tenth] += time.thread_time() - start
        points[tenth] += len(y)
        updates[tenth] += outcome.state.k - state.k
        Z = lift(p, X[outcome.changed])
        A, xi, state = A + Z.T @ Z, xi + y[outcome.changed] @ Z, outcome.state
    A += a * np.eye(d)
    fresh = np.linalg.solve(A, xi)
    difference = float(np.linalg.norm(state.w - fresh) / np.linalg.norm(fresh))
    return LongRun(LONG, state.k, seconds, points, updates, difference, float(np.linalg.cond(A)))


def print_long_runs() -> None:
    print(f"\nCost per point over {LONG:,} points: second order, d = 100, {kind(True)}, CPU µs\n")
    print(
        f"{'a':<7}{'updates':>9}   {'a point, first tenth':>21}{'last tenth':>12}{'ratio':>7}"
        f"   {'an update, first':>17}{'last':>7}{'ratio':>7}   {'w against a fresh solve':>24}{'cond A':>9}"
    )
    for a in (1.0, 1e-8, 0.0):
        run = long_run(a)
        point, update = 1e6 * run.seconds / run.points_each, 1e6 * run.seconds / run.updates_each
        print(
            f"{a:<7g}{run.updates:>9,}   {point[0]:>21.2f}{point[-1]:>12.2f}{point[-1] / point[0]:>7.2f}"
            f"   {update[0]:>17.2f}{update[-1]:>7.2f}{update[-1] / update[0]:>7.2f}"
            f"   {run.difference:>24.1e}{run.condition:>9.1f}"
        )


def main() -> None:
    print(
        f"The learners in process. {ROUNDS} shuffled rounds, medians, CPU time of the working thread; ratios are what"
    )
    print(
        'counts. One pass from nothing over each stream; "updates" is the share of points that change the classifier.'
    )
    print(
        "River: linear_model.Perceptron, predict_one then learn_one on dicts made beforehand. One by one, ours get the"
    )
    print(
        f"first {SINGLES:,} points, the paper's form (a pseudo-inverse a point, BLAS on one thread) the first {PREFIX}."
    )
    tables = [measure(d, noisy) for d in DIMENSIONS for noisy in (False, True)]
    for table in tables:
        print_table(table)
    print_targets(tables)
    print_long_runs()


if __name__ == "__main__":
    main()
