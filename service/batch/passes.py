"""Sums over rows, wherever they are: a pass is one function of a chunk of rows, added up over chunks and partitions

    passes(visit, asked) = Σ over partitions Σ over their chunks of visit(chunk, asked)

A solver sees rows through passes alone, so it need not know whether they are in memory (one partition), in files, or
with other machines. A visit keeps nothing: whatever a solver knows of a row is a function of the row and of `asked`, so
a partition that is lost is read again, by anyone.

Chunks begin at multiples of their length, counted from the first row of the partition, and their sums are added as
unevaluated pairs high + low (TwoSum; Knuth). So sums do not depend on the order in which chunks are added but for some
2⁻¹⁰⁰ of their terms, and hence, bit for bit, not on how rows are divided into partitions of whole chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from service.geometry import Array

Rows = NDArray[np.int64]

#: Numbers of a chunk, 8 MiB; and its rows at least, at most. Partitions of whole multiples of MOST
#: rows have the chunks that all rows together would have.
CHUNK, LEAST, MOST = 1 << 20, 512, 1 << 18
#: Numbers that rows picked from all partitions may have: 128 MiB
GATHER = 1 << 24


@dataclass(frozen=True)
class Block:
    """Some rows: features, labels (±1, or the number of a class), costs c_i = C s_i, ‖f_i‖, and where they stand"""

    F: Array
    y: NDArray[Any]
    c: Array
    lengths: Array
    index: Rows  # of the rows, as the caller counts them
    start: int = 0  # the place of the first, where they follow each other

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, rows: Rows | slice) -> Block:
        return replace(
            self,
            F=self.F[rows],
            y=self.y[rows],
            c=self.c[rows],
            lengths=self.lengths[rows],
            index=self.index[rows],
        )


class Chunk(Block):
    """Rows that follow each other. Those in memory are asked again: the products with the last weights are kept."""

    def dot(self, w: Array) -> Array:
        """⟨w,f_i⟩ of each row; a matrix of weights has them as rows"""
        kept: list[tuple[Array, Array]] = self.__dict__.setdefault("kept", [])
        for weights, product in kept:
            if weights is w:
                return product
        product = np.asarray(self.F @ w.T)
        kept[:] = [*kept[-1:], (w, product)]
        return product


class Partition(Protocol):
    """Rows start … stop−1 of all, which can be read again and again"""

    @property
    def start(self) -> int: ...

    @property
    def stop(self) -> int: ...

    def chunks(self, rows: int) -> Iterable[Chunk]: ...


@dataclass(frozen=True)
class Held:
    """A partition in memory"""

    block: Block
    start: int = 0
    _chunks: dict[int, list[Chunk]] = field(default_factory=dict)

    @property
    def stop(self) -> int:
        return self.start + len(self.block)

    def chunks(self, rows: int) -> Iterable[Chunk]:
        if rows not in self._chunks:
            self._chunks[rows] = [self._chunk(slice(at, at + rows)) for at in range(0, len(self.block), rows)]
        return self._chunks[rows]

    def _chunk(self, rows: slice) -> Chunk:
        block = self.block
        return Chunk(
            block.F[rows],
            block.y[rows],
            block.c[rows],
            block.lengths[rows],
            block.index[rows],
            self.start + rows.start,
        )


# ---------------------------------------------------------------------------------- what a pass gives


@dataclass(frozen=True)
class Picked:
    """Rows that were looked for, where each stands, a number of each, and how many may be kept: the largest by rank"""

    block: Block
    places: Rows
    values: Array
    rank: Array
    limit: int

    def __len__(self) -> int:
        return len(self.places)


@dataclass(frozen=True)
class Seen:
    """Sums (as pairs), the largest values, and rows"""

    sums: tuple[Array, ...] = ()
    most: tuple[float, ...] = ()
    picked: Picked | None = None
    low: tuple[Array, ...] = ()

    def totals(self) -> list[Array]:
        """What overflowed stays so"""
        return [np.where(np.isfinite(high), high + low, high) for high, low in zip(self.sums, self.low, strict=True)]


Visit = Callable[[Chunk, Any], Seen]
Task = tuple[Partition, int, Visit, Any]
Executor = Callable[[Sequence[Task]], Iterable[Seen]]


def added(parts: Iterable[Seen]) -> Seen:
    """Their sums, the largest of all, and the rows of all"""
    sums: tuple[Array, ...] = ()
    low: tuple[Array, ...] = ()
    most: tuple[float, ...] = ()
    picked: list[Picked] = []
    for part in parts:
        if not sums:
            sums = tuple(np.asarray(each, dtype=np.float64) for each in part.sums)
            low = part.low or tuple(np.zeros_like(each) for each in sums)
        else:
            pairs = [_two_sum(a, b) for a, b in zip(sums, part.sums, strict=True)]
            low = tuple(a + e for a, (_, e) in zip(low, pairs, strict=True))
            low = tuple(a + b for a, b in zip(low, part.low, strict=True)) if part.low else low
            sums = tuple(s for s, _ in pairs)
        most = tuple(map(max, most, part.most)) if most else part.most
        if part.picked is not None:
            picked.append(part.picked)
            if sum(map(len, picked)) > 2 * part.picked.limit:
                picked = [joined(picked)]
    return Seen(sums, most, joined(picked) if picked else None, low)


def joined(picked: Sequence[Picked]) -> Picked:
    """In the order of their places; where they are too many, those of the largest rank"""
    first = picked[0]
    if len(picked) == 1 and len(first) <= first.limit:
        return first
    blocks = [each.block for each in picked]
    places = np.concatenate([each.places for each in picked])
    rank = np.concatenate([each.rank for each in picked])
    kept: Rows | slice = slice(None)
    if len(places) > first.limit:
        kept = np.sort(np.lexsort((places, -rank))[: first.limit])
    block = Block(
        np.concatenate([each.F for each in blocks])[kept],
        np.concatenate([each.y for each in blocks])[kept],
        np.concatenate([each.c for each in blocks])[kept],
        np.concatenate([each.lengths for each in blocks])[kept],
        np.concatenate([each.index for each in blocks])[kept],
    )
    values = np.concatenate([each.values for each in picked])
    return Picked(block, places[kept], values[kept], rank[kept], first.limit)


def pick(
    chunk: Chunk, mask: NDArray[np.bool_], limit: int, values: Array | None = None, rank: Array | None = None
) -> Picked:
    rows = np.flatnonzero(mask)
    none = np.zeros(len(rows))
    found = Picked(
        Block(chunk.F[rows], chunk.y[rows], chunk.c[rows], chunk.lengths[rows], chunk.index[rows]),
        chunk.start + rows,
        none if values is None else values[rows],
        none if rank is None else rank[rows],
        limit,
    )
    return found if len(rows) <= limit else joined([found])


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """s + e = a + b exactly, s their rounded sum"""
    s = np.asarray(a + b)
    t = s - a
    return s, np.asarray((a - (s - t)) + (b - t))


# ---------------------------------------------------------------------------------- all partitions


def done(task: Task) -> Seen:
    """One partition's share of a pass"""
    part, rows, visit, asked = task
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # what is not finite proves nothing
        return added(visit(chunk, asked) for chunk in part.chunks(rows))


def in_turn(tasks: Sequence[Task]) -> Iterator[Seen]:
    """The executor of what is in memory"""
    return map(done, tasks)


@dataclass
class Passes:
    """All rows"""

    parts: Sequence[Partition]
    d: int
    width: int = 0  # numbers that a visit makes of a row; 0: d
    executor: Executor = in_turn
    heard: Callable[[], None] = lambda: None  # after every pass; what it raises ends the fit

    def __post_init__(self) -> None:
        width = max(self.width, self.d, 1)
        self.rows = min(MOST, max(LEAST, 1 << (max(CHUNK // width, 1).bit_length() - 1)))

    def __len__(self) -> int:
        return self.parts[-1].stop

    @property
    def in_memory(self) -> bool:
        return len(self.parts) == 1 and isinstance(self.parts[0], Held)

    def __call__(self, visit: Visit, asked: Any) -> Seen:
        tasks = [(part, self.rows, visit, _within(asked, part)) for part in self.parts]
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            seen = added(self.executor(tasks))
        self.heard()
        return seen

    def limit(self) -> int:
        """Rows that may be picked"""
        return max(1, GATHER // self.d)

    def take(self, places: Rows) -> Block:
        """The rows at these places, which are sorted"""
        picked = self(_take, Places(places, max(1, len(places)))).picked
        assert picked is not None
        return picked.block

    def spread(self, count: int) -> Block:
        """At most so many rows, at equal distances"""
        n = len(self)
        return self.take(np.arange(0, n, -(-n // min(n, count))))

    def all_rows(self) -> Block | None:
        """All rows in memory; None if they are too many"""
        part = self.parts[0]
        if len(self.parts) == 1 and isinstance(part, Held):
            return part.block
        return self.take(np.arange(len(self))) if len(self) <= self.limit() else None


def held(block: Block, width: int = 0) -> Passes:
    """Rows in memory: one partition"""
    return Passes([Held(block)], block.F.shape[1], width)


@dataclass(frozen=True)
class Places:
    places: Rows
    limit: int = 1

    def within(self, start: int, stop: int) -> Places:
        low, high = np.searchsorted(self.places, [start, stop])
        return replace(self, places=self.places[low:high])

    def mask(self, chunk: Chunk) -> NDArray[np.bool_]:
        """Which rows of the chunk stand there"""
        found = np.zeros(len(chunk), dtype=bool)
        low, high = np.searchsorted(self.places, [chunk.start, chunk.start + len(chunk)])
        found[self.places[low:high] - chunk.start] = True
        return found


NOWHERE = Places(np.zeros(0, dtype=np.int64))


def _take(chunk: Chunk, asked: Places) -> Seen:
    return Seen(picked=pick(chunk, asked.mask(chunk), asked.limit))


def _within(asked: Any, part: Partition) -> Any:
    """What of it concerns a partition"""
    return asked.within(part.start, part.stop) if hasattr(asked, "within") else asked
