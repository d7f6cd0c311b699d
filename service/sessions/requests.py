"""What is asked of a session's stream, and what is answered."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import ClassVar, NamedTuple

import numpy as np

from service.errors import HorocycleError, KeyReused
from service.geometry import Array
from service.sessions.frozen import frozen
from service.sessions.records import Counters
from service.sessions.rows import Batch, Indices
from service.sessions.spec import Spec


class Numbered(NamedTuple):
    """A message of a producer"""

    producer: str
    connection: int
    seq: int
    reply: Callable[[Answer | HorocycleError], bytes]  # what it is answered with, and what is kept of that

    @property
    def key(self) -> str:
        return message_key(self.producer, self.seq)


class Consumed(NamedTuple):
    """Entries of a stream elsewhere (service/consume): all of it that is for this session, from one id to another"""

    producer: str
    after: int  # how far the session has come with it: else these are not the next, and are not applied
    last: int  # how far it has come with these


def message_key(producer: str, seq: int) -> str:
    """Under which its reply is kept, among those of idempotency keys; no HTTP header has a zero byte"""
    return f"\0{producer} {seq}"


@frozen
class Request:
    """One observe, or the late labels of points that wait under their ids."""

    batch: Batch  # of late labels: no points until their ids are looked up
    fingerprint: bytes = b""  # of the body
    key: str | None = None  # idempotency key
    if_match: int | None = None
    columns: bool = True  # whether the answer has them
    probabilities: bool = False  # and these among them
    ids: tuple[str, ...] = ()
    late: Indices | None = None  # the late labels
    fates: bytes = b""  # what became of each id, a letter each: A accepted, U unknown, E expired, L learned before
    numbered: Numbered | None = None  # a message of a stream
    consumed: Consumed | None = None  # entries of a stream elsewhere
    refused: HorocycleError | None = None  # a message that is not understood; its number is used up all the same


@frozen
class Unread:
    """An observe whose body is read when its turn comes, in one go with those that wait beside it (api/formats.py)"""

    body: bytes
    raw: bool  # it is rows; else JSON
    together: Reader
    key: str | None = None
    fingerprint: bytes = b""
    if_match: int | None = None
    columns: bool = True
    probabilities: bool = False
    numbered: Numbered | None = None
    alone: Callable[[Spec], Request] | None = None  # reads it with more care; None: that is for its sender to do

    ids: ClassVar[tuple[str, ...]] = ()


#: Reads bodies together, for a session; None: one that is not plain, or is wrong in some way, and is to be read alone
Reader = Callable[[Spec, Sequence[Unread]], Sequence[Request | None]]


_HEADER = struct.Struct("<16sQQQQQQQQQ")
#: In the place of the columns stands the learner that they can be made again with; beside the count of probabilities.
AGAIN = 1 << 32
#: Scores and probabilities of the request, by the encoded learner; whether it takes signs
Again = Callable[[bytes, bool], tuple[Array, Array | None]]


@frozen
class Answer:
    """What one request did: the scores before learning each point, and the session after the last."""

    scores: Array | None
    accepted: int
    mistakes: int
    counters: Counters
    fates: bytes = b""
    replayed: bool = False  # it was stored under the request's idempotency key
    decided: Indices | None = field(default=None, compare=False)  # what the scores decide, if it was just found
    probabilities: Array | None = None
    labels: Indices | None = field(default=None, compare=False)  # the points' own, where there are scores

    @property
    def column_bytes(self) -> int:
        return sum(each.nbytes for each in (self.scores, self.probabilities) if each is not None)

    def pack(self, fingerprint: bytes, learner: bytes = b"") -> bytes:
        """As it is stored under the idempotency key; with the learner as it was before, if that is smaller"""
        c = self.counters
        columns = 0 if self.scores is None else self.scores.shape[1] if self.scores.ndim == 2 else 1
        sure = (0 if self.probabilities is None else self.probabilities.shape[1]) + (AGAIN if learner else 0)
        head = (self.accepted, self.mistakes, c.observed, c.mistakes, c.updates, c.version, columns, sure)
        told = [each.tobytes() for each in (self.scores, self.probabilities) if each is not None]
        parts = [learner] if learner else told
        return b"".join([_HEADER.pack(fingerprint, *head, len(self.fates)), self.fates, *parts])

    @classmethod
    def unpack(cls, stored: bytes, request: Request, again: Again) -> Answer:
        """The stored answer, if it was given to the same body; columns that are not stored come from `again`"""
        if stored[:16] != request.fingerprint:
            raise KeyReused
        _, accepted, mistakes, observed, total, updates, version, columns, sure, ids = _HEADER.unpack_from(stored)
        fates, counters = stored[_HEADER.size :][:ids], Counters(observed, total, updates, version)
        scores: Array | None = None
        probabilities: Array | None = None
        if sure & AGAIN:
            scores, probabilities = again(stored[_HEADER.size + ids :], columns == 1)
        elif columns:
            numbers = np.frombuffer(stored, dtype="<f8", offset=_HEADER.size + ids)
            scores = numbers[: accepted * columns]
            scores = scores if columns == 1 else scores.reshape(-1, columns)
            probabilities = numbers[accepted * columns :].reshape(-1, sure) if sure else None
        labels = request.batch.indices if request.late is None else request.late[np.frombuffer(fates, "S1") == b"A"]
        found = (scores, accepted, mistakes, counters, fates)
        return cls(*found, replayed=True, probabilities=probabilities, labels=labels[:accepted])
