"""The confidence sequence: its level on streams that drift, watched at every point, and its ends rounded outwards."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from service.errors import InvalidParameter
from service.learners import confidence
from service.learners.confidence import LAMBDAS, interval, log_mixture
from tests.oracle import mp

STREAMS, POINTS, LEVEL = 2000 if os.environ.get("SOAK_SECONDS") else 600, 1500, 0.9


def rates(rng: np.random.Generator, kind: int) -> Any:
    """Error rates that stay, fall as a learner learns, rise slowly, jump, or swing"""
    t = np.arange(1, POINTS + 1)
    low, high = np.sort(rng.uniform(0.01, 0.7, 2))
    return (
        np.full(POINTS, low),
        low + (high - low) / np.sqrt(t),
        np.linspace(low, high, POINTS),
        np.where(t > POINTS // 2, high, low),
        low + (high - low) * (1 + np.sin(t / 40)) / 2,
    )[kind]


def misses(excluded: Callable[[int, int, float], bool], streams: int, seed: int) -> float:
    """In how many streams the running mean of the rates was ever outside, of points looked at in the manner of t²"""
    rng, missed = np.random.default_rng(seed), 0
    looks = np.unique(np.geomspace(1, POINTS, 120).astype(int))
    for i in range(streams):
        p = rates(rng, i % 5)
        S, mean = np.cumsum(rng.random(POINTS) < p), np.cumsum(p) / np.arange(1, POINTS + 1)
        missed += any(excluded(int(t), int(S[t - 1]), float(mean[t - 1])) for t in looks)
    return missed / streams


def outside(t: int, S: int, p: float) -> bool:
    return log_mixture(t, S, p) >= -math.log1p(-LEVEL)


def test_at_all_times_at_once_it_holds_with_its_level_whatever_the_rates_do() -> None:
    """10 % are allowed to miss; 600 streams would show 14 % with a probability of 5·10⁻⁴, 2,000 (make soak) 12.2 %"""
    assert misses(outside, STREAMS, 0) <= 1 - LEVEL + 3.3 * math.sqrt(LEVEL * (1 - LEVEL) / STREAMS)


def test_one_that_is_too_narrow_is_found_out() -> None:
    """The interval of a fixed time, looked at again and again, misses far more often than its level says"""

    def fixed_time(t: int, S: int, p: float) -> bool:
        return abs(S / t - p) > 1.645 * math.sqrt(p * (1 - p) / t)

    assert misses(fixed_time, 200, 1) > 0.3


def test_the_mixture_is_the_formula_and_errs_downwards() -> None:
    """Against 50 digits: never above, and below by no more than the errors it counts"""
    for t, S, p in ((10, 3, 0.9), (1000, 17, 0.1), (10**6, 250_000, 0.26), (10**9, 10**8, 0.100_2), (50, 0, 0.2)):
        exact = mp.log(
            sum(mp.exp(mp.mpf(x) * S - t * mp.log(1 - mp.mpf(p) + p * mp.exp(mp.mpf(x)))) for x in LAMBDAS)
            / len(LAMBDAS)
        )
        got = log_mixture(t, S, p)
        assert got <= exact
        assert got >= exact - 2.0**-48 * (8 * t + 10)


@pytest.mark.parametrize(("t", "S"), [(1, 0), (1, 1), (20, 20), (100, 0), (1000, 111), (10**4, 1110), (10**8, 10**7)])
def test_its_ends_are_outside_and_a_little_further_in_is_not(t: int, S: int) -> None:
    found = interval(t, S)
    assert found.estimate == S / t
    assert 0 <= found.low <= S / t <= found.high <= 1
    limit = -math.log(0.05)
    for end in (found.low, found.high):
        if 0 < end < 1:
            assert log_mixture(t, S, end) >= limit
            inside = end + (S / t - end) * 1e-3
            assert log_mixture(t, S, inside) < limit


def test_its_width_is_below_twice_that_of_one_moment() -> None:
    """Fashion-MNIST's 11.1 % after 10⁴ points: some [10.0, 12.3]; a normal interval has ±0.62"""
    found = interval(10_000, 1110)
    assert found.low > 0.0985
    assert found.high < 0.1235
    for t, share in ((300, 0.5), (10**5, 0.02), (10**7, 0.3)):
        width = interval(t, int(t * share))
        assert width.high - width.low < 2 * 2 * 1.96 * math.sqrt(share * (1 - share) / t)


def test_nothing_seen_nothing_known_and_nonsense_is_refused() -> None:
    assert interval(0, 0) == confidence.Interval(None, 0.0, 1.0, 0.95)
    for t, S, level in ((1, 2, 0.95), (1, -1, 0.95), (1, 0, 0.0), (1, 0, 1.0)):
        with pytest.raises(InvalidParameter):
            interval(t, S, level)
    assert interval(1000, 100, 0.99).low < interval(1000, 100, 0.9).low
