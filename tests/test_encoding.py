"""encode∘decode is the identity, and bytes that are not what was written are refused."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from dataclasses import fields, replace
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest

from service.errors import StateCorrupt
from service.learners import LEARNERS, auto, decode, encode, one_vs_rest, perceptron, second_order
from service.learners.certificates import certificate
from service.learners.encoding import FORMAT
from tests.learner_cases import CASES, Case, stream


def equal(left: Any, right: Any) -> bool:
    """Field by field, to the bit and the type"""
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, np.ndarray):
        return bool(left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes())
    if type(left).__module__.startswith("service"):
        return type(left) is type(right) and all(
            equal(getattr(left, f.name), getattr(right, f.name)) for f in fields(left)
        )
    return type(left) is type(right) and bool(left == right)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("n", [0, 1, 50])
def test_decoding_what_was_encoded_gives_the_state_back(case: Case, n: int) -> None:
    X, y = stream(case, 9, 50)
    state = case.learner.observe(case.first(), X[:n], y[:n]).state
    again = decode(encode(state))
    assert equal(again, state)
    left, right = case.learner.observe(state, X, y), case.learner.observe(again, X, y)
    assert equal(left.state, right.state)
    assert np.array_equal(left.scores, right.scores)


def test_every_learner_can_be_encoded() -> None:
    assert {json.loads(header(encode(case.first())))["learner"] for case in CASES.values()} == set(LEARNERS)


def header(data: bytes) -> bytes:
    return data[24 : 24 + int.from_bytes(data[20:24], "little")]


def forged(data: bytes, change: Callable[[dict[str, Any]], object], cut: int = 0) -> bytes:
    """The same bytes under another header, less `cut` at the end, with a checksum that fits: damage that only the
    checks behind it see"""
    head = json.loads(header(data))
    change(head)
    new = json.dumps(head).encode()
    return signed(len(new).to_bytes(4, "little") + new + data[24 + len(header(data)) : len(data) - cut])


def signed(body: bytes) -> bytes:
    return b"HORO" + blake2b(body, digest_size=16).digest() + body


STATE = perceptron.observe(perceptron.init([0.1, 0.2]), [[0.3, 0.1]], [-1]).state
DATA = encode(STATE)


def test_any_damaged_byte_is_noticed() -> None:
    for i in range(len(DATA)):
        with pytest.raises(StateCorrupt):
            decode(DATA[:i] + bytes([DATA[i] ^ 1]) + DATA[i + 1 :])
    for cut in (DATA[:-1], DATA[:10], b"", DATA + b"\0"):
        with pytest.raises(StateCorrupt):
            decode(cut)


@pytest.mark.parametrize(
    "change",
    [
        lambda head: head.update(format=FORMAT + 1),
        lambda head: head.pop("format"),
        lambda head: head.update(learner="oracle"),
        lambda head: head.update(learner="hyperboloid"),
        lambda head: head.pop("fields"),
        lambda head: head["fields"].pop(),
        lambda head: head["fields"][1].__setitem__(1, "<f4"),
        lambda head: head["fields"][1].__setitem__(2, [3]),
        lambda head: head["fields"][1].__setitem__(2, [-1]),
        lambda head: head["fields"][0].__setitem__(2, [1]),
        lambda head: head["fields"][1].__setitem__(2, "no"),
        lambda head: head.update(learner="one_vs_rest", members=[]),
    ],
)
def test_a_header_that_does_not_fit_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(StateCorrupt):
        decode(forged(DATA, change))


def test_a_state_holds_what_it_was_given_to_the_last_bit() -> None:
    odd = replace(STATE, w=np.array([5e-324, -0.0]), k=2**62, reach=1 / 3)
    assert equal(decode(encode(odd)), odd)


def test_the_first_format_stays_what_it_was() -> None:
    """Byte for byte what was written before the learners named their own axes, one by one and one against the rest"""
    vectors = ",".join(f'["{name}","<f8",[2]]' for name in ("p", "w", "start"))
    fields = f'"fields":[["c","<f8",[]],{vectors},["k","<i8",[]],["reach","<f8",[]]]'
    one = f'{{"learner":"perceptron",{fields}}}'
    state = perceptron.State(1.0, np.array([0.5, 0.25]), np.array([1.0, 2.0]), np.zeros(2), 3, 4.0)
    numbers = struct.pack("<7dqd", 1, 0.5, 0.25, 1, 2, 0, 0, 3, 4)
    assert encode(state)[20:] == framed(f'{{"format":1,"learner":"perceptron",{fields}}}', numbers)
    both = f'{{"format":1,"learner":"one_vs_rest","members":[{one},{one}]}}'
    assert equal(decode(signed(framed(both, numbers * 2))), one_vs_rest.init([state, state]))


def test_a_state_from_before_a_field_came_is_read_with_its_default() -> None:
    """Q of the second order came later: of an older state it is not known, so that nothing is claimed"""
    state = second_order.observe(second_order.init([0.1, 0.2], a=0.0), [[0.3, 0.1]], [-1]).state
    assert certificate(state, 0.1).bound is not None

    def older(head: dict[str, Any]) -> None:
        assert head["fields"].pop()[0] == "q"

    data = forged(encode(state), older, cut=8)
    read = decode(data)
    assert math.isnan(read.q)
    assert equal(replace(read, q=state.q), state)
    assert certificate(read, 0.1).bound is None


def test_a_vote_without_a_weight_for_each_member_is_refused() -> None:
    data = encode(auto.default(2))

    def drop(head: dict[str, Any]) -> None:
        head["members"].pop()

    def shorten(head: dict[str, Any]) -> None:
        head["fields"][2][2] = [2]

    for change in (drop, shorten):
        with pytest.raises(StateCorrupt):
            decode(forged(data, change))


def framed(head: str, arrays: bytes) -> bytes:
    return len(head).to_bytes(4, "little") + head.encode() + arrays
