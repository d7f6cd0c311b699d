"""What is counted beside the learner: however a stream is cut, the same."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.errors import StateCorrupt
from service.sessions import tally
from service.sessions.tally import BLOCK, LOGGED, WINDOW, Confusion, Tally


def folded(parts: Sequence[Any]) -> tuple[Tally, list[int], list[int]]:
    state, before, alarms = Tally(), Confusion(), list[int]()
    for part in parts:
        wrong = np.array(part, dtype=bool)
        indices = wrong.astype(np.int64)
        state, before, found, _ = tally.observe(state, before, 2, indices, 0 * indices)
        alarms += found
    return state, state.log.tolist(), alarms


def same(a: Tally, b: Tally) -> bool:
    """Bit for bit, in memory and packed"""
    equal = [np.array_equal(getattr(a, each.name), getattr(b, each.name)) for each in fields(Tally)]
    return all(equal) and (a.pack(), a.pack_log()) == (b.pack(), b.pack_log())


#: error rates that rise and fall, long enough for the ring and the log to go round
streams = st.builds(
    lambda seed, rates: np.concatenate([np.random.default_rng(seed).random(700) < rate for rate in rates]),
    st.integers(0, 2**32 - 1),
    st.lists(st.sampled_from([0.0, 0.05, 0.5, 1.0]), min_size=1, max_size=8),
)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(streams, st.lists(st.integers(0, 5600), max_size=12))
def test_a_batch_is_a_fold_however_it_is_cut(wrong: Any, cuts: list[int]) -> None:
    whole = folded([wrong])
    parts = folded(np.split(wrong, sorted(cuts)))
    assert same(whole[0], parts[0]) and whole[1:] == parts[1:]


@settings(deadline=None, derandomize=True, max_examples=60)
@given(streams)
def test_it_counts_what_counting_by_hand_counts(wrong: Any) -> None:
    state, log, alarms = folded([wrong])
    n = len(wrong)
    assert state.seen == n and state.window_size == min(n, WINDOW)
    assert state.window_mistakes == wrong[-WINDOW:].sum()
    assert log == [wrong[at : at + BLOCK].sum() for at in range(0, n - BLOCK + 1, BLOCK)]
    assert state.block == wrong[n - n % BLOCK :].sum()
    assert (state.alarms, state.last_alarm) == (len(alarms), alarms[-1] if alarms else 0)
    assert state.switches == (wrong[1:] != wrong[:-1]).sum() and state.last_label == wrong[-1]


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.lists(st.integers(0, 60), min_size=1, max_size=9))
def test_every_request_is_told_what_counting_its_own_points_tells(seed: int, K: int, sizes: list[int]) -> None:
    """Empty ones too; pairs of many classes are counted in no table if there are few points"""
    rng, stops = np.random.default_rng(seed), np.cumsum(sizes).tolist()
    indices, decided = rng.integers(K, size=stops[-1]), rng.integers(K, size=stops[-1])
    changed, updated = rng.random(stops[-1]) < 0.5, rng.random(stops[-1]) < 0.2
    counted = tally.observe(Tally(), Confusion(), K, indices, decided, 0.002, stops, changed, updated)
    parts = [slice(stop - size, stop) for stop, size in zip(stops, sizes, strict=True)]
    flags = (indices != decided, changed, updated)
    assert list(counted.requests) == [(part.stop, *(int(flag[part].sum()) for flag in flags)) for part in parts]
    assert counted.confusion.matrix(K).tolist() == [
        [int(((indices == i) & (decided == j)).sum()) for j in range(K)] for i in range(K)
    ]
    assert counted.tally.switches == (indices[1:] != indices[:-1]).sum()


def test_one_by_one_is_the_same_too() -> None:
    wrong = np.random.default_rng(1).random(2500) < np.repeat([0.02, 0.7], 1250)
    whole, single = folded([wrong]), folded([[x] for x in wrong])
    assert same(whole[0], single[0]) and whole[1:] == single[1:]
    assert len(whole[2]) > 0


def test_a_tally_survives_its_bytes() -> None:
    state, _, _ = folded([np.random.default_rng(2).random(12_345) < 0.3])
    assert same(Tally.unpack(state.pack(), state.pack_log()), state)
    assert same(Tally.unpack(Tally().pack()), Tally())
    for damaged in (b"", state.pack()[:-1], state.pack() + b"\0"):
        with pytest.raises(StateCorrupt):
            Tally.unpack(damaged)


def test_its_input_is_left_as_it_was() -> None:
    before = folded([np.ones(10, dtype=bool)])[0]
    packed = before.pack()
    tally.observe(before, Confusion(), 2, np.ones(2000, dtype=np.int64), np.zeros(2000, dtype=np.int64))
    assert before.pack() == packed


def test_probabilities_are_judged_as_by_hand_however_they_are_cut() -> None:
    rng = np.random.default_rng(4)
    P = rng.dirichlet([0.5] * 3, size=3000)
    P[7] = [0.0, 1.0, 0.0]
    indices, decided = rng.integers(3, size=3000), P.argmax(axis=1)
    indices[7] = 0  # it was sure, and wrong
    whole = tally.judged(Tally(), P, indices, decided)
    parts = Tally()
    for rows in np.split(np.arange(3000), [1, 2, 700, 2999]):
        parts = tally.judged(parts, np.ascontiguousarray(P[rows]), indices[rows], decided[rows])
    assert same(whole, parts) and same(Tally.unpack(whole.pack()), whole)
    true, sure = P[np.arange(3000), indices], P.max(axis=1)
    assert whole.log_loss == pytest.approx(-np.log(np.maximum(true, 1e-15)).mean(), rel=1e-12)
    bins = np.minimum((10 * sure).astype(int), 9)
    apart = [abs(sure[bins == b].sum() - (decided == indices)[bins == b].sum()) for b in range(10)]
    assert whole.calibration_error == pytest.approx(sum(apart) / 3000, rel=1e-12)
    assert Tally().log_loss is Tally().calibration_error is None


def test_a_tally_of_version_1_keeps_its_counts() -> None:
    """Bytes as 0.1 wrote them: eight numbers and the window"""
    window = np.random.default_rng(5).random(WINDOW) < 0.3
    data = struct.pack("<QQQQddQQ125s", 2500, 7, 90, 12, -1.5, -2.0, 2, 2100, np.packbits(window).tobytes())
    found = tally.from_version_1(data, np.array([30, 40], dtype="<u2").tobytes())
    assert (found.seen, found.block, found.alarms, found.last_alarm) == (2500, 7, 2, 2100)
    assert found.window_mistakes == window.sum() and found.log.tolist() == [30, 40]
    assert same(Tally.unpack(found.pack(), found.pack_log()), found)
    with pytest.raises(StateCorrupt):
        tally.from_version_1(data[:-1])


def test_only_the_newest_blocks_are_logged() -> None:
    state = Tally()
    for rate in (0, 1):
        decided = np.full(LOGGED * BLOCK, rate)
        state = tally.observe(state, Confusion(), 2, 0 * decided, decided).tally
    right = np.zeros(3 * BLOCK, dtype=np.int64)
    state = tally.observe(state, Confusion(), 2, right, right).tally
    assert state.log.tolist() == [BLOCK] * (LOGGED - 3) + [0] * 3
