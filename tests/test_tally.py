"""What is counted beside the learner: however a stream is cut, the same; and the textbook's test for drift."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.errors import StateCorrupt
from service.sessions import tally
from service.sessions.tally import BLOCK, LOGGED, WINDOW, Tally
from tests.page_hinkley import page_hinkley


def folded(parts: Sequence[Any]) -> tuple[Tally, list[int], list[int]]:
    state, alarms = Tally(), list[int]()
    for part in parts:
        state, found = tally.observe(state, np.array(part, dtype=bool))
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
    assert alarms == page_hinkley(wrong)
    assert (state.alarms, state.last_alarm) == (len(alarms), alarms[-1] if alarms else 0)


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
    tally.observe(before, np.ones(2000, dtype=bool))
    assert before.pack() == packed


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.2, 0.5, 0.8, 1.0])
def test_a_false_alarm_is_rare(rate: float) -> None:
    """Errors that stay what they are: of a million points at most a few raise one"""
    wrong = np.random.default_rng(3).random(1_000_000) < rate
    assert tally.observe(Tally(), wrong)[0].alarms <= 3


def test_a_rise_is_found_soon() -> None:
    """From 5 % to 50 %: after some 130 points; never before it"""
    delays = []
    for seed in range(50):
        wrong = np.random.default_rng(seed).random(4000) < np.repeat([0.05, 0.5], 2000)
        delays.append(tally.observe(Tally(), wrong)[1][0] - 2000)
    assert 0 < min(delays) and max(delays) < 300
    assert 110 < np.mean(delays) < 150


def test_only_the_newest_blocks_are_logged() -> None:
    state = Tally()
    for rate in (0, 1):
        state, _ = tally.observe(state, np.full(LOGGED * BLOCK, bool(rate)))
    state, _ = tally.observe(state, np.zeros(3 * BLOCK, dtype=bool))
    assert state.log.tolist() == [BLOCK] * (LOGGED - 3) + [0] * 3
