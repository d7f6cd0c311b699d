"""Platt's sigmoid is the optimum that scikit-learn finds, whatever the scale of the scores; probabilities are such."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import _SigmoidCalibration

from service.batch.calibration import Platt, fit, normalise, probability
from service.errors import LengthMismatch
from tests.strategies import Array, generators

EPS = float(np.finfo(np.float64).eps)

each_noise = pytest.mark.parametrize("noise", [0.0, 0.5, 3.0])  # separable, overlapping, hopeless
theorem = settings(max_examples=50, deadline=None, derandomize=True, database=None)


def scored(rng: np.random.Generator, n: int, noise: float, positive: float = 0.4) -> tuple[Array, Array]:
    """Labels ±1, and scores y + noise"""
    y = np.where(rng.uniform(size=n) < positive, 1.0, -1.0)
    return y + noise * rng.standard_normal(n), y


def targets(y: Array) -> Array:
    """(n₊+1)/(n₊+2) and 1/(n₋+2)"""
    n_plus, n_minus = (y > 0).sum(), (y < 0).sum()
    return np.asarray(np.where(y > 0, (n_plus + 1) / (n_plus + 2), 1 / (n_minus + 2)))


@each_noise
@pytest.mark.parametrize("scale", [1e-3, 1.0, 20.0])
@pytest.mark.parametrize("positive", [0.02, 0.5, 0.9])
def test_agrees_with_scikit_learn(noise: float, scale: float, positive: float) -> None:
    """To 1e-6, which is where its L-BFGS ends (scores that hardly vary are scaled for it: it would end earlier)."""
    f, y = scored(np.random.default_rng(0), 1000, noise, positive)
    theirs = _SigmoidCalibration().fit(f, y)
    ours = fit(f * scale, y)
    assert np.abs(probability(ours, f * scale) - theirs.predict(f)).max() <= 1e-6
    assert ours.a * scale == pytest.approx(theirs.a_, rel=1e-4)
    assert ours.b == pytest.approx(theirs.b_, rel=1e-4, abs=1e-4)


@theorem
@given(generators, st.floats(0, 3), st.integers(2, 300))
def test_at_the_optimum_the_gradient_is_zero(rng: np.random.Generator, noise: float, n: int) -> None:
    """Σ(t−P) = 0 and Σ(t−P)f = 0, to the 1e-12 a point (in units of the largest score) that Newton's method ends at"""
    f, y = scored(rng, n, noise)
    rest = targets(y) - probability(fit(f, y), f)
    assert abs(rest.sum()) <= 2e-12 * n
    assert abs(rest @ f) <= 2e-12 * n * np.abs(f).max()


@theorem
@given(generators, st.integers(-1000, 1000))
def test_the_unit_of_the_scores_does_not_matter(rng: np.random.Generator, exponent: int) -> None:
    """Exact, for powers of two"""
    f, y = scored(rng, 50, 1.0)
    plain, scaled = fit(f, y), fit(f * 2.0**exponent, y)
    assert (scaled.a * 2.0**exponent, scaled.b) == (plain.a, plain.b)


@each_noise
def test_the_other_class_has_the_other_probability(noise: float) -> None:
    f, y = scored(np.random.default_rng(1), 200, noise)
    assert np.abs(probability(fit(f, y), f) + probability(fit(-f, -y), -f) - 1).max() <= 1e-10


@pytest.mark.parametrize("huge", [1e200, 1e308, math.nextafter(math.inf, 0)])
def test_huge_scores_overflow_nowhere(huge: float) -> None:
    """filterwarnings = error: an overflow or an invalid value anywhere would fail"""
    f = np.array([huge, huge / 2, -huge, -huge / 3, 0.0, 1.0])
    y = np.array([1, 1, -1, -1, 1, -1])
    platt = fit(f, y)
    P = probability(platt, f)
    assert math.isfinite(platt.a) and math.isfinite(platt.b)
    assert np.all((P >= 0) & (P <= 1)) and P[0] > P[1] > P[4] > P[3] > P[2]
    steep = Platt(-5.0, 2.0)
    assert probability(steep, [huge, -huge]).tolist() == [1.0, 0.0]


def test_outliers_overflow_nothing_at_the_optimum() -> None:
    """A thousand times the other scores: |a f + b| is 1,949 there, and e to that is no float"""
    f, y = scored(np.random.default_rng(2), 200, 0.3)
    f, y = np.append(f, [1e3, -1e3]), np.append(y, [1.0, -1.0])
    platt = fit(f, y)
    assert abs(platt.a * 1e3) > 710
    assert np.abs(probability(platt, f) - _SigmoidCalibration().fit(f, y).predict(f)).max() <= 1e-6


def test_probabilities_keep_their_digits_in_both_tails() -> None:
    """P(f) of a = −1, b = 0 is e^f/(1+e^f): to four roundings even where it is 1e-300"""
    f = np.linspace(-690, 690, 1001)
    want = np.array([1 / (1 + math.exp(-u)) if u >= 0 else math.exp(u) / (1 + math.exp(u)) for u in f])
    assert np.all(np.abs(probability(Platt(-1.0, 0.0), f) - want) <= 4 * EPS * want)


@pytest.mark.parametrize("y", [[1, 1, 1, 1], [-1, -1, -1, -1], [1, -1, 1, -1]])
def test_scores_that_say_nothing_get_the_smoothed_share(y: list[int]) -> None:
    """All scores equal: P is the mean target"""
    P = probability(fit(np.full(4, 0.7), y), [0.7])
    assert P[0] == pytest.approx(targets(np.array(y)).mean(), abs=1e-9)


@pytest.mark.parametrize(("label", "share"), [(1, 5 / 6), (-1, 1 / 6)])
def test_one_class_alone_has_a_constant_probability(label: int, share: float) -> None:
    platt = fit([0.1, -0.3, 2.0, 5.0], np.full(4, label))
    assert probability(platt, [-100, 0.0, 100]) == pytest.approx(share, abs=1e-6)


def test_no_points_at_all_are_even_odds() -> None:
    assert fit([], []) == Platt(0.0, 0.0)


def test_as_many_labels_as_scores() -> None:
    with pytest.raises(LengthMismatch):
        fit([1.0, 2.0], [1])


@theorem
@given(generators, st.integers(2, 20), st.floats(0, 300))
def test_rows_sum_to_one_and_keep_their_order(rng: np.random.Generator, K: int, spread: float) -> None:
    """K+1 roundings"""
    P = 10 ** -rng.uniform(0, spread, (30, K))
    normal = normalise(P)
    assert np.all(np.abs(normal.sum(axis=1) - 1) <= (K + 1) * EPS)
    assert np.array_equal(normal.argmax(axis=1), P.argmax(axis=1))
    assert np.all(np.abs(normal * P.max(axis=1)[:, None] - P * normal.max(axis=1)[:, None]) <= 4 * EPS * P)


def test_a_row_of_zeros_is_nobodys() -> None:
    tiny = math.ulp(0.0)
    rows = normalise([[0.0, 0.0, 0.0, 0.0], [0.0, 0.5, 0.0, 0.5], [0.0, 0.0, tiny, 0.0]])
    assert rows.tolist() == [[0.25] * 4, [0.0, 0.5, 0.0, 0.5], [0.0, 0.0, 1.0, 0.0]]
