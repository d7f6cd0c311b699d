"""The log is the truth: its entries, replayed from the first point or from any checkpoint, give the state, bit for bit.

A program is a random list of what can happen to a session. `Model` runs it as the definition has it, a point at a time;
everything else is compared with that: commits of many points, the codec, checkpoints, a cold load, the past.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from service.api.schemas import OpenSession
from service.errors import LogTrimmed, StaleModel
from service.geometry import Array
from service.process.private_store import EmbeddedServer
from service.sessions import checkpoint, rows
from service.sessions.apply import apply, replay
from service.sessions.beginnings import Past, needs_past
from service.sessions.changes import with_budget, with_labels, with_member, with_promotion, with_settings
from service.sessions.late import resolved
from service.sessions.opening import first_session
from service.sessions.promotion import begun
from service.sessions.records import Change, Entry, EntryId, Loaded, Waiting
from service.sessions.requests import Request
from service.sessions.rows import Batch
from service.sessions.spec import Spec
from service.store import codec
from tests.storing import Parts, bits, some_classifier, storing
from tests.strategies import points

CHANGES = ["promote", "budget", "keep", "name", "labels", "member"]
KINDS = ["one", "batch", "gather", "match", "late", "large", *CHANGES]
LEARN = {"learn": {"warmup": 40, "method": "closest"}}
SESSIONS: dict[str, dict[str, Any]] = {
    "perceptron": {"algorithm": "perceptron", "reference": [0.2, -0.1], "curvature": 0.5},
    "second order": {"algorithm": "second_order"},
    "second order, a=0": {"algorithm": "second_order", "a": 0},
    "second order, large": {"algorithm": "second_order", "dimension": 100, "reference": "origin"},
    "strategic": {"algorithm": "strategic", "budget": 0.5},
    "strategic, estimating": {"algorithm": "strategic", "budget": {"estimate": {"initial": 2.0}}},
    "hyperboloid": {"algorithm": "hyperboloid"},
    "three classes": {"algorithm": "perceptron", "labels": ["a", "b", "c"]},
    "three classes, second order": {"algorithm": "second_order", "labels": [1, 2, 3]},
    "three classes, hyperboloid": {"algorithm": "hyperboloid", "labels": [1, 2, 3]},
    "hemisphere": {"algorithm": "perceptron", "reference": None},
    "hemisphere, three classes": {
        "algorithm": "second_order",
        "labels": [1, 2, 3],
        "curvature": 0.5,
        "reference": None,
    },
    "softmax": {"algorithm": "softmax", "reference": None, "labels": [1, 2, 3]},
    "gaussian": {"algorithm": "gaussian", "reference": None},
    "auto": {"algorithm": "auto", "reference": None},
    "auto, three classes": {"algorithm": "auto", "reference": None, "labels": [1, 2, 3]},
    "auto, restarting": {"algorithm": "auto", "reference": None, "drift": {"sensitivity": 0.9, "on_drift": "restart"}},
    "strategic, restarting": {"algorithm": "strategic", "drift": {"sensitivity": 0.9, "on_drift": "restart"}},
    "warming": {"algorithm": "perceptron", "reference": LEARN},
    "warming, second order": {"algorithm": "second_order", "reference": LEARN},
    "warming, three classes": {"algorithm": "perceptron", "reference": LEARN, "labels": [1, 2, 3]},
}


def opening(name: str, **more: Any) -> dict[str, Any]:
    return {"dimension": 2, "reference": "origin", **SESSIONS[name], **more}


def some_points(spec: Spec, rng: np.random.Generator, n: int) -> Batch:
    """Clusters around the ball, and some labels wrong: a learner goes on making mistakes, but not at every point"""
    indices, d = rng.integers(0, len(spec.labels), size=n), spec.dimension
    angle = 0.3 + 2 * np.pi * indices / len(spec.labels) / 3
    X = 0.3 * points(rng, n, d, 1.5)
    X[:, 0] += 0.5 * np.cos(angle)
    X[:, 1] += 0.5 * np.sin(angle)
    return Batch(X / np.sqrt(spec.curvature), np.where(rng.random(n) < 0.1, 0, indices))


@dataclass
class Model:
    """A session by the definition: each point by itself. `history` has it after every number of points."""

    loaded: Loaded
    seen: list[Batch] = field(default_factory=list)
    history: dict[int, Loaded] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._remember()

    def past(self) -> Batch:
        known = rows.joined([rows.empty(self.loaded.spec.dimension), *self.seen])
        return known[max(0, len(known) - self.loaded.spec.keep_points) :]

    def observe(self, batch: Batch, *, answering: bool = False) -> None:
        """`answering`: they name the version they answer, which is the one of their turn"""
        for i in range(len(batch)):
            version = self.loaded.counters.version if answering else None
            past = Past(self.past()) if needs_past(self.loaded, 1) else None
            self.loaded = apply(self.loaded, [Request(batch[i : i + 1], if_match=version)], past).change.after
            self.seen.append(batch[i : i + 1])
            self._remember()

    def change(self, change: Change) -> None:
        self.loaded = change.after
        self._remember()

    def _remember(self) -> None:
        self.history[self.loaded.counters.observed] = self.loaded


def changed(loaded: Loaded, kind: str, seed: int) -> Change:
    """A change other than by learning; one that this session cannot have is a new name"""
    spec, rng = loaded.spec, np.random.default_rng(seed)
    lifted = spec.features in ("lift", "hyperboloid") or spec.algorithm == "strategic"
    if kind == "promote" and lifted and not (spec.algorithm == "second_order" and spec.a == 0):
        return with_promotion(loaded, begun(spec, loaded.state, some_classifier(spec, rng)), f"fit-{seed}")
    if kind == "budget" and spec.estimate:
        return with_budget(with_settings(loaded, {"name": "anew"}), float(rng.uniform(0.5, 3.0)))
    if kind == "keep":
        return with_settings(loaded, {"keep_points": spec.warmup + int(rng.integers(100, 400))})
    named = with_settings(loaded, {"name": f"name-{seed}"})
    if kind == "labels" and spec.algorithm != "strategic" and loaded.status == "live" and spec.a > 0:
        return with_labels(named, [f"new-{len(spec.labels)}"])
    if kind == "member" and spec.members and seed % 4 == 0:
        return with_member(named, spec.members[seed // 4 % len(spec.members)])
    return named


# ------------------------------------------------------------------------------------------ without a store

operations = st.lists(
    st.tuples(
        st.sampled_from([*KINDS, "batch", "match", "match", "match"]),
        st.integers(0, 2**32 - 1),
    ),
    min_size=4,
    max_size=12,
)


def asked(model: Model, kind: str, seed: int) -> list[Request]:
    """The requests of one commit"""
    rng, spec, version = np.random.default_rng(seed), model.loaded.spec, model.loaded.counters.version
    sizes = {"one": [1], "batch": [int(rng.integers(2, 40))], "large": [250], "late": [5, 3]}
    parts = [some_points(spec, rng, n) for n in sizes.get(kind, rng.integers(1, 20, size=4).tolist())]
    if kind == "late":  # the second asks for an id of the first again
        requests = [
            Request(rows.empty(spec.dimension), ids=tuple("abcde"), late=parts[0].indices),
            Request(rows.empty(spec.dimension), ids=tuple("exf"), late=parts[1].indices),
        ]
        fates = {
            id: Waiting("waiting", x.tobytes()) for id, x in zip("abcdef", [*parts[0].X, *parts[1].X], strict=False)
        }
        found, learned = resolved(spec, requests, {**fates, "x": Waiting("unknown")})
        assert [len(each.batch) for each in found] == [5, 1] and learned == list("abcdef")
        return found
    if kind == "match":
        offsets = [0, *rng.choice([-1, 0, 1, 2, 7], size=3).tolist()]  # -1: without If-Match
        rng.shuffle(offsets)
        return [
            Request(batch, if_match=None if offset < 0 else version + offset)
            for batch, offset in zip(parts, offsets, strict=True)
        ]
    return [Request(batch) for batch in parts]


def ran(model: Model, kind: str, seed: int) -> tuple[Loaded, Change]:
    """One commit, and the model after it"""
    before = model.loaded
    if kind in CHANGES:
        change = changed(before, kind, seed)
        model.change(change)
        return before, change
    requests = asked(model, kind, seed)
    points = sum(len(request.batch) for request in requests)
    applied = apply(before, requests, Past(model.past()) if needs_past(before, points) else None)
    for request, result in zip(requests, applied.results, strict=True):
        if not isinstance(result, StaleModel):
            model.observe(request.batch[: result.accepted], answering=request.if_match is not None)
    assert bits(applied.change.after) == bits(model.loaded)
    return before, applied.change


def through_the_codec(entry: Entry, spec: Spec, number: int) -> Entry:
    """As it comes back from the log"""
    written = codec.write_entry(entry, spec, f"{number}-commit")
    flat = [each if isinstance(each, bytes) else str(each).encode() for each in written.fields]
    record = codec.Record(EntryId(entry.counters.observed, number), dict(zip(flat[::2], flat[1::2], strict=True)))
    assert sorted(record.blocks()) == sorted(written.blocks)
    found = codec.read_entry(record, spec, written.blocks)
    assert (found.kind, found.counters, found.status, found.points) == (
        entry.kind,
        entry.counters,
        entry.status,
        entry.points,
    )
    assert (found.matched, found.alarms, found.spec, found.fit) == (entry.matched, entry.alarms, entry.spec, entry.fit)
    if entry.batch is not None:
        assert found.batch is not None
        assert rows.pack(found.batch) == rows.pack(entry.batch)
        assert np.array_equal(found.predicted, entry.predicted)
    return found


@pytest.mark.parametrize("name", SESSIONS)
def test_replaying_entries_gives_the_state_from_the_first_point_and_from_every_checkpoint(name: str) -> None:
    spec = OpenSession(**opening(name)).spec()

    @settings(max_examples=6 if "large" in name else 12, derandomize=True, deadline=None, phases=[Phase.generate])
    @given(operations, st.data())
    def check(program: list[tuple[str, int]], data: st.DataObject) -> None:
        model = Model(first_session(spec))
        replicas = [first_session(spec)]
        for number, (kind, seed) in enumerate(program, 1):
            before, change = ran(model, kind, seed)
            if change.entry is None:
                continue
            entry = through_the_codec(change.entry, change.after.spec, number)
            expected = bits(change.after)
            if entry.points > 1:  # inside of it
                cut = data.draw(st.integers(1, entry.points - 1))
                assert bits(replay(before, entry, cut)) == bits(model.history[before.counters.observed + cut])
            replicas = [replay(each, entry) for each in replicas]
            for each in replicas:
                assert bits(each) == expected
                assert each.spec == change.after.spec
            replicas.append(checkpoint.unpack(checkpoint.pack(change.after)))
            assert bits(replicas[-1]) == expected

    check()


# -------------------------------------------------------------------------------------------- in a store


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path_factory.mktemp("store") / "data") as found:
        yield found


@dataclass
class Program:
    """Operations on a stored session, in step with the model"""

    parts: Parts
    sid: str
    model: Model
    rng: np.random.Generator
    covered: int = 0  # every position from here on must be
    waited: int = 0

    async def step(self, kind: str) -> None:
        spec = self.model.loaded.spec
        if kind in CHANGES:
            seed = int(self.rng.integers(2**32))
            changes: list[Change] = []

            def how(loaded: Loaded) -> Change:
                changes.append(changed(loaded, kind, seed))
                return changes[-1]

            await self.parts.ingest.change(self.sid, how)
            self.model.change(changed(self.model.loaded, kind, seed))
        elif kind == "late":
            await self._late(some_points(spec, self.rng, 5))
        elif kind == "match":
            batch, version = some_points(spec, self.rng, 12), self.model.loaded.counters.version
            with pytest.raises(StaleModel):
                await self._observe(batch, if_match=version + 1)
            answer = await self._observe(batch, if_match=version)
            self.model.observe(batch[: answer.accepted], answering=True)
        else:
            sizes = {"one": [1], "batch": [30], "large": [200], "gather": [3, 1, 8, 5]}[kind]
            batches = [some_points(spec, self.rng, n) for n in sizes]
            await asyncio.gather(*(self._observe(batch) for batch in batches))
            for batch in batches:
                self.model.observe(batch)
        loaded = self.model.loaded
        self.covered = max(self.covered, loaded.counters.observed - loaded.spec.keep_points)

    async def _observe(self, batch: Batch, **how: Any) -> Any:
        return await self.parts.ingest.observe(self.sid, Request(batch, bytes(16), **how))

    async def _late(self, batch: Batch) -> None:
        ids = [f'"late-{self.waited + i}"' for i in range(len(batch))]
        self.waited += len(batch)
        waiting = [(id, x.tobytes()) for id, x in zip(ids, batch.X, strict=True)]
        await self.parts.late.wait(self.model.loaded.spec, waiting, ttl=600.0, limit=1000)
        request = Request(batch[:0], bytes(16), ids=tuple(ids), late=batch.indices)
        answer = await self.parts.ingest.observe(self.sid, request)
        assert (answer.accepted, answer.fates) == (5, b"AAAAA")
        self.model.observe(batch)

    async def compare(self, url: str) -> Loaded:
        """The lane's session, and the one that a worker finds who has just started"""
        lane = await self.parts.ingest.current(self.sid)
        assert bits(lane) == bits(self.model.loaded)
        async with storing(url) as cold:
            loaded = await cold.store.load(self.sid)
            assert bits(loaded) == bits(lane)
            assert (loaded.spec, loaded.revision, loaded.newest) == (lane.spec, lane.revision, lane.newest)
            assert (loaded.learner_at, loaded.checkpoints) == (lane.learner_at, lane.checkpoints)
        return loaded

    async def look_back(self, loaded: Loaded, positions: Any) -> int:
        """The past at these positions, and the first that is covered"""
        observed = loaded.counters.observed
        first = 0
        for position in sorted({0, *positions, observed}):
            try:
                was = await self.parts.log.at(loaded, position)
            except LogTrimmed as error:
                assert position < error.first <= observed
                assert position < self.covered
                first = max(first, error.first)
                continue
            assert position == 0 or position >= first
            assert bits(was) == bits(self.model.history[position]), position
        if first:
            assert bits(await self.parts.log.at(loaded, first)) == bits(self.model.history[first])
        return first


SHARES = np.array([0.2, 0.2, 0.14, 0.12, 0.1, 0.06, 0.05, 0.04, 0.03, 0.03, 0.02, 0.01])


async def programmed(
    url: str, name: str, *, steps: int, keep: int, seed: int = 0, **settings: Any
) -> tuple[int, Loaded]:
    """Runs a program, and compares now and then; the first position that is still covered, and the session"""
    async with storing(url) as parts:
        loaded = await parts.opened(**opening(name, keep_points=keep, **settings))
        rng = np.random.default_rng(seed)
        program = Program(parts, loaded.spec.id, Model(loaded), rng)
        for number in range(1, steps + 1):
            await program.step(str(rng.choice(KINDS, p=SHARES)))
            if number % 5 == 0 or number == steps:
                loaded = await program.compare(url)
            if number % 40 == 0:
                await program.look_back(loaded, rng.integers(0, loaded.counters.observed + 1, size=8).tolist())
        observed = loaded.counters.observed
        near = {*range(max(0, program.covered - 3), program.covered + 4), *range(max(0, observed - 5), observed)}
        near |= set(rng.integers(0, observed + 1, size=12).tolist())
        near |= set(rng.integers(min(program.covered, observed), observed + 1, size=25).tolist())
        first = await program.look_back(loaded, near)
        return first, loaded


@pytest.mark.parametrize("name", [name for name in SESSIONS if name != "second order, large"])
def test_a_stored_session_and_its_past_are_those_of_the_points(server: EmbeddedServer, name: str) -> None:
    """Few points are kept: checkpoints come, and entries are trimmed"""
    first, loaded = asyncio.run(programmed(server.url, name, steps=120, keep=150))
    assert 0 < first < loaded.counters.observed
    assert len(loaded.checkpoints) > 1


def test_a_large_learner_is_stored_now_and_then_and_replayed_by_who_loads_it(server: EmbeddedServer) -> None:
    """80 KB at d = 100: commits of one point do not write it; large commits and promotions go into blocks"""
    _, loaded = asyncio.run(programmed(server.url, "second order, large", steps=60, keep=400))
    assert loaded.counters.observed > 500
    assert loaded.learner_at != loaded.newest  # the last program's load replayed something


def test_every_position_of_a_short_stream_can_be_looked_back_to(server: EmbeddedServer) -> None:
    async def run() -> None:
        async with storing(server.url) as parts:
            loaded = await parts.opened(**opening("warming", keep_points=1000))
            program = Program(parts, loaded.spec.id, Model(loaded), np.random.default_rng(5))
            for kind in ("one", "gather", "batch", "match", "promote", "one", "late", "name", "batch", "gather"):
                await program.step(kind)
            loaded = await program.compare(server.url)
            assert await program.look_back(loaded, range(loaded.counters.observed + 1)) == 0
            assert len(program.model.history) == loaded.counters.observed + 1

    asyncio.run(run())


def test_retained_points_are_the_newest_of_the_stream(server: EmbeddedServer) -> None:
    """However they were cut into entries, and wherever those begin"""

    async def run() -> list[tuple[int, Array]]:
        async with storing(server.url) as parts:
            loaded = await parts.opened(keep_points=64)
            sent, found = rows.empty(2), list[tuple[int, Array]]()
            for n in (1, 30, 50, 1, 200, 3, 700, 64, 1):
                batch = some_points(loaded.spec, np.random.default_rng(n), n)
                await parts.observe(loaded.spec.id, batch.X, batch.indices)
                sent, loaded = rows.joined([sent, batch]), await parts.ingest.current(loaded.spec.id)
                kept = await parts.log.retained(loaded)
                assert rows.pack(kept) == rows.pack(sent[-64:])
                found.append((len(sent), kept.X))
            return found

    assert [n for n, _ in asyncio.run(run())][-1] == 1050
