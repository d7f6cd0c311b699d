"""Random support vector machines, the worst of them: each fit that returns is certified by exact sums, none hangs.

Points up to the radius limit and as near as 1e-8 to p, on rings, along one line, many times over; C from 10⁻³ to 10⁶;
one point against a thousand. SOAK_SVM=1 runs ten thousand of them, SOAK_SVM=N so many.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from service.batch import svm
from service.errors import NotConverged, NotSeparable
from service.geometry import RADIUS_LIMIT, Array
from tests.strategies import directions

EPS = float(np.finfo(np.float64).eps)
SOAK = int(os.environ.get("SOAK_SVM") or 0)
COUNT = 150 if not SOAK else 10_000 if SOAK == 1 else SOAK
#: As many problems may be out of float64's reach: hard margins of some 1e-10 of the rows' length
OUT_OF_REACH = 0.005


@dataclass(frozen=True)
class Case:
    kind: str
    F: Array
    y: NDArray[np.int64]
    C: float

    def fit(self) -> svm.Fit:
        if self.kind == "hard":
            return svm.fit(self.F, self.y, margin="hard")
        return svm.fit(self.F, self.y, loss=self.kind, C=self.C)


def case(seed: int) -> Case:
    rng = np.random.default_rng([seed, 7])
    kind = str(rng.choice(["hinge", "squared_hinge", "hard"]))
    features = str(rng.choice(["lift", "tangent", "hyperboloid"]))
    d, n = int(rng.choice([1, 2, 3, 5, 10, 20, 50])), int(rng.choice([2, 4, 10, 40, 150, 400, 1001]))
    n = n if n * d <= 10_000 else 150
    X = _points(rng, n, d)
    p = directions(rng, 1, d)[0] * math.tanh(float(rng.choice([0.0, 1.0, 6.0])) / 2)
    F = svm.features(X, None if features == "hyperboloid" else p, features)
    return Case(kind, F, _labels(rng, F), 10 ** rng.uniform(-3, 6))


def _points(rng: np.random.Generator, n: int, d: int) -> Array:
    R = float(rng.choice([0.5, 3.0, 8.0, 12.0, RADIUS_LIMIT]))
    radii = [
        rng.uniform(0, R, n),
        np.full(n, R),
        np.where(rng.random(n) < 0.5, R, 10 ** rng.uniform(-8, 0)),
        R * 10 ** rng.uniform(-8, 0, n),
    ][rng.integers(4)]
    along = directions(rng, n, d)
    if rng.random() < 0.2:  # all on one line
        along = rng.choice([-1.0, 1.0], (n, 1)) * along[:1]
    if rng.random() < 0.2:  # in few directions
        along = along[rng.integers(n, size=n)]
    X = along * np.tanh(radii / 2)[:, None] * (1 - 1e-12)
    return X[rng.integers(max(1, n // 4), size=n)] if rng.random() < 0.2 else X  # many times over


def _labels(rng: np.random.Generator, F: Array) -> NDArray[np.int64]:
    n = len(F)
    way = rng.integers(4)
    y = np.where(F @ rng.normal(size=F.shape[1]) >= 0, 1, -1)
    if way == 1:
        y = np.where(rng.random(n) < 0.1, -y, y)
    elif way == 2:
        y = rng.choice([-1, 1], n)
    elif way == 3:  # one against all others
        y = np.where(np.arange(n) == rng.integers(n), 1, -1)
    if abs(int(y.sum())) == n:
        y[0] *= -1
    return y


# ---------------------------------------------------------------------------------- the oracle


def exact_products(a: Array, b: Array) -> tuple[Array, Array]:
    """x and e with x + e = a·b exactly: Dekker's product, by Veltkamp's halves"""

    def halves(v: Array) -> tuple[Array, Array]:
        high = 134217729.0 * v
        high = high - (high - v)
        return high, v - high

    x, (a1, a2), (b1, b2) = a * b, halves(a), halves(b)
    return x, a2 * b2 - (((x - a1 * b1) - a2 * b1) - a1 * b2)


def sums(M: Array, v: Array, first: float = 0.0) -> Array:
    """first + Mv, each rounded once"""
    x, e = exact_products(M, np.broadcast_to(v, M.shape))
    return np.array([math.fsum([first, *row]) for row in np.concatenate([x, e], axis=1).tolist()])


def objectives(case: Case, w: Array, lam: Array) -> tuple[float, float]:
    """P(w) and D(λ) from their definitions, good to a few eps; ±∞ where w or λ is not feasible"""
    B = case.y[:, None] * case.F
    t, v = sums(-B, w, 1.0), sums(np.ascontiguousarray(B.T), lam)
    half = math.fsum((w * w).tolist()) / 2
    total, curved = math.fsum(lam.tolist()), math.fsum((v * v).tolist()) / 2
    if lam.min() < 0 or (case.kind == "hinge" and lam.max() > case.C):
        total = -math.inf
    if case.kind == "hard":
        return half if t.max() <= 0 else math.inf, total - curved
    t = np.maximum(t, 0)
    if case.kind == "hinge":
        return half + case.C * math.fsum(t.tolist()), total - curved
    return half + case.C * math.fsum((t * t).tolist()), total - curved - math.fsum((lam * lam).tolist()) / (4 * case.C)


def assert_certified(case: Case, found: svm.Fit) -> None:
    """The exact gap is reached, and what the fit says of P and D bounds them from the right sides"""
    P, D = objectives(case, found.w, found.dual_variables)
    rounding = 16 * EPS * (P + float(found.dual_variables.sum()))
    assert -rounding <= P - D <= 1e-6 * P + rounding
    assert P <= found.primal + rounding
    assert found.dual - rounding <= D
    assert found.dual <= found.primal
    assert 0 <= found.gap <= 1e-6


def assert_refuted(case: Case, error: NotSeparable) -> None:
    """Convex weights of rows whose sum is nothing beside them: no margin is larger than it"""
    assert error.witness
    index, s = np.array([i for i, _ in error.witness]), np.array([weight for _, weight in error.witness])
    B = case.y[index, None] * case.F[index]
    assert (s > 0).all()
    assert s.sum() == pytest.approx(1, abs=1e-12)
    assert np.linalg.norm(s @ B) <= 1.1e-8 * float(s @ np.linalg.norm(B, axis=1))


# ---------------------------------------------------------------------------------- the tests


def test_every_fit_that_returns_is_certified() -> None:
    ends: Counter[str] = Counter()
    with threadpool_limits(1):
        for seed in range(COUNT):
            problem = case(seed)
            try:
                found = problem.fit()
            except NotSeparable as error:
                assert problem.kind == "hard", seed
                assert_refuted(problem, error)
                ends["not separable"] += 1
            except NotConverged as error:
                assert error.gap > 1e-6, seed
                assert error.iterations <= 1_000, seed
                ends["not converged"] += 1
            else:
                assert found.iterations <= 1_000, seed
                assert_certified(problem, found)
                ends[problem.kind] += 1
    assert ends["not converged"] <= OUT_OF_REACH * COUNT, ends
    assert min(ends[kind] for kind in ("hinge", "squared_hinge", "hard", "not separable")) > COUNT / 20, ends


@pytest.mark.parametrize("kind", ["hinge", "squared_hinge", "hard"])
def test_the_oracle_agrees_with_fifty_digits(kind: str) -> None:
    rng = np.random.default_rng(1)
    problem = Case(kind, rng.normal(size=(30, 3)) * 10.0 ** rng.uniform(-4, 5, (30, 1)), rng.choice([-1, 1], 30), 3.0)
    w, lam = rng.normal(size=3) * 1e3, rng.uniform(0, 3, 30)
    if kind == "hard":
        problem = Case(kind, problem.F, np.where(problem.F @ w > 0, 1, -1), 3.0)
        w = w * 1e6
    with mpmath.workdps(50):
        B = mpmath.matrix((problem.y[:, None] * problem.F).tolist())
        t = [max(1 - m, mpmath.mpf(0)) for m in B * mpmath.matrix(w.tolist())]
        v = B.T * mpmath.matrix(lam.tolist())
        power = {"hinge": 1, "squared_hinge": 2, "hard": 1}[kind]
        P = sum(mpmath.mpf(x) ** 2 for x in w.tolist()) / 2 + 3 * sum(x**power for x in t)
        D = sum(map(mpmath.mpf, lam.tolist())) - sum(x**2 for x in v) / 2
        D -= sum(mpmath.mpf(x) ** 2 for x in lam.tolist()) / 12 if kind == "squared_hinge" else 0
        assert objectives(problem, w, lam) == pytest.approx((float(P), float(D)), rel=64 * EPS)


def ring(n: int, radius: float, seed: int = 0) -> Array:
    return math.tanh(radius / 2) * directions(np.random.default_rng(seed), n, 2)


@pytest.mark.parametrize(("radius", "C"), [(12.0, 1e4), (10.0, 1e6)])
@pytest.mark.parametrize("seed", range(3))
def test_a_ring_at_the_border(radius: float, C: float, seed: int) -> None:
    """Where λ is 10⁻¹¹ of C, and 10⁵ times shorter than a row: a hinge that is a hard margin"""
    X = ring(200, radius * (1 - 1e-9), seed)
    for y in (np.where(X[:, 0] > 0.2, 1, -1), np.random.default_rng(seed).choice([-1, 1], 200)):
        problem = Case("hinge", svm.features(X, None, "hyperboloid"), y, C)
        assert_certified(problem, problem.fit())


@pytest.mark.parametrize("seed", range(3) if SOAK else [1])
def test_a_squared_hinge_of_lengths_from_one_to_e12(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = directions(rng, 400, 50) * np.tanh(rng.uniform(0, 11.9, (400, 1)) / 2)
    y = np.where(X @ rng.normal(size=50) > 0, 1, -1)
    problem = Case("squared_hinge", svm.features(X, np.zeros(50), "lift"), y, 1000.0)
    assert_certified(problem, problem.fit())


@pytest.mark.parametrize("seed", range(5))
def test_a_hard_margin_of_radii_12_and_1e_8(seed: int) -> None:
    """Lengths from 10⁻⁸ to 8·10⁴, a margin of 10⁻⁹: dual ≤ primal, whatever rounding does"""
    rng = np.random.default_rng(seed)
    X = ring(60, 11.99, seed) * np.where(np.arange(60) % 2, 1.0, 1e-8)[:, None]
    problem = Case("hard", svm.features(X, np.zeros(2), "lift"), np.where(X @ rng.normal(size=2) > 0, 1, -1), 1.0)
    assert_certified(problem, problem.fit())


def test_points_on_the_reference_point_have_no_margin() -> None:
    """Nor do soft margins mind them"""
    for F in (np.zeros((2, 2)), np.zeros((5, 3)), np.vstack([np.zeros(2), np.eye(2)])):
        y = np.where(np.arange(len(F)) == 0, 1, -1)
        with pytest.raises(NotSeparable) as caught:
            svm.fit(F, y, margin="hard")
        assert_refuted_by_zero(caught.value, F)
        for kind in ("hinge", "squared_hinge"):
            problem = Case(kind, F, y, 2.0)
            assert_certified(problem, problem.fit())


def assert_refuted_by_zero(error: NotSeparable, F: Array) -> None:
    assert error.witness is not None
    [(index, weight)] = error.witness
    assert (F[index].any(), weight) == (False, 1.0)
