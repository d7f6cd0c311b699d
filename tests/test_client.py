"""The clients against the running service: every method, with and without await."""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import random
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clients
from clients import client as surface
from clients import problems, unasync
from clients.answers import (
    Commit,
    Ended,
    Event,
    FitChanged,
    ModelChanged,
    Observed,
    Page,
    Reset,
    SessionChanged,
    SessionInfo,
    read_event,
)
from clients.bodies import MANY, labelled, rows
from clients.calls import is_what_was_asked
from clients.client import AsyncClient, Client, Retry, Session
from clients.events import Parser
from clients.problems import Problem, leaves, problem
from clients.transport import Marks, Position
from service import errors
from service.api.problems import STATUS
from service.api.problems import problem as told
from service.errors import slug
from tests.blocking import client as made
from tests.running import Running
from tests.stub import INFO, Stub, serving

DOCS = Path(__file__).parent.parent / "docs" / "client.md"


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(kind: str, running: Running) -> Iterator[Client]:
    with made(kind, running.url) as found:
        yield found


@pytest.fixture
def session(client: Client) -> Session:
    return client.sessions.open(dimension=2, reference="origin")


def stream(n: int, d: int = 2, seed: int = 0) -> tuple[Any, Any]:
    """Points of a disk, one in ten with a wrong label: the learner never rests"""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.9, 0.9, (n, d)) / np.sqrt(d)
    return X, np.where((X[:, 0] > 0.3 * X[:, -1]) ^ (rng.random(n) < 0.1), 1, -1)


# ------------------------------------------------------------------------------------------------------- the surface


@pytest.mark.parametrize("name", ["Client", "Sessions", "Session", "Stream", "Fit"])
def test_both_clients_have_the_same_surface(name: str) -> None:
    plain, other = getattr(surface, name), getattr(surface, f"Async{name}")
    names = {each for each in vars(plain) if not each.startswith("_")}
    assert names == {each for each in vars(other) if not each.startswith("_")}
    for each in names:
        here, there = getattr(plain, each), getattr(other, each)
        if callable(here):
            assert list(inspect.signature(here).parameters) == list(inspect.signature(there).parameters), each
            awaited = inspect.iscoroutinefunction(there) or inspect.isasyncgenfunction(there)
            gives = inspect.signature(there).return_annotation
            awaited = awaited or str(gives).startswith("Async")  # an iterator, a stream
            assert awaited, f"Async{name}.{each} is not to be awaited"
            assert here.__doc__, f"{name}.{each} says nothing"


def test_the_blocking_client_is_the_asynchronous_one_without_await() -> None:
    assert unasync.TARGET.read_text() == unasync.synchronous(unasync.SOURCE.read_text()), unasync.__doc__


# ------------------------------------------------------------------------------------------------------------ sessions


def test_a_session_is_opened_found_changed_and_ended(client: Client) -> None:
    opened = client.sessions.open(
        algorithm="second_order", dimension=3, reference="origin", labels=("no", "yes"), a=0.5, name="first"
    )
    assert len(opened.id) == 32
    assert (opened.info.labels, opened.info.a, opened.info.reference) == (("no", "yes"), 0.5, [0.0, 0.0, 0.0])
    found = client.sessions.get(opened.id)
    assert found.info == opened.info
    assert opened.change(name=None, keep_points=7).keep_points == 7
    assert opened.info.name is None
    assert found.refresh() == opened.info
    opened.end()
    with pytest.raises(problems.SessionGone) as gone:
        found.refresh()
    assert gone.value.session == opened.id
    with pytest.raises(problems.SessionGone):
        opened.end()
    with pytest.raises(problems.UnknownSession):
        client.sessions.get("no such session")


def test_what_a_session_is_to_be_may_be_arrays(client: Client) -> None:
    session = client.sessions.open(dimension=2, reference=np.array([0.2, -0.1]), labels=np.array([3, 5]), curvature=0.5)
    assert session.info.reference == [0.2, -0.1]
    assert session.info.labels == (3, 5)


def test_an_id_is_taken_once(client: Client) -> None:
    first = client.sessions.open(dimension=2, reference="origin")
    with pytest.raises(problems.SessionExists) as taken:
        client.sessions.open(dimension=2, reference="origin", id=first.id)
    assert taken.value.session == first.id


def test_all_sessions_are_listed_a_page_at_a_time(client: Client) -> None:
    ids = [client.sessions.open(dimension=2, reference="origin").id for _ in range(5)]
    listed = [session.id for session in client.sessions.list(page=2)]
    assert listed[:5] == ids[::-1]
    assert len(set(listed)) == len(listed)


def test_a_snapshot_goes_on_elsewhere_with_the_same_predictions(client: Client, session: Session) -> None:
    X, y = stream(300)
    session.observe(X[:200], y[:200])
    other = client.sessions.restore(session.snapshot(), name="a copy")
    assert (other.info.observed, other.info.name) == (200, "a copy")
    assert same(session.observe(X[200:], y[200:]), other.observe(X[200:], y[200:]))
    assert not session.snapshot(points=False)["points"]


# ------------------------------------------------------------------------------------------------------------- observe


def same(one: Observed, other: Observed) -> bool:
    """Bit for bit"""
    columns = ("predictions", "scores", "correct")
    return (one.accepted, one.mistakes, one.session) == (other.accepted, other.mistakes, other.session) and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in columns
    )


FORMS: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "arrays": lambda X, y: (X, y),
    "lists": lambda X, y: (X.tolist(), y.tolist()),
    "tuples": lambda X, y: (tuple(map(tuple, X.tolist())), tuple(y.tolist())),
    "iterators": lambda X, y: (iter(X.tolist()), iter(y.tolist())),
    "an array and an iterator": lambda X, y: (X, iter(y)),
    "pairs": lambda X, y: (zip(X, y, strict=True),),
    "a generator of pairs": lambda X, y: ((([float(a), b], int(c)) for (a, b), c in zip(X, y, strict=True)),),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("batch", [None, 130])
def test_a_stream_is_the_same_in_every_form(client: Client, form: Any, batch: int | None) -> None:
    X, y = stream(700)
    straight = client.sessions.open(dimension=2, reference="origin")
    expected = straight.observe(X, y)
    session = client.sessions.open(dimension=2, reference="origin")
    assert same(session.observe(*form(X, y), batch=batch), expected)
    assert np.array_equal(session.model().weights, straight.model().weights)


def test_an_asynchronous_stream_is_one_too(running: Running) -> None:
    X, y = stream(250)

    async def arriving() -> AsyncIterator[Any]:
        for point, label in zip(X, y, strict=True):
            yield point, label

    async def both() -> tuple[Observed, Observed]:
        async with AsyncClient(running.url) as client:
            one, other = (
                await client.sessions.open(dimension=2, reference="origin"),
                await client.sessions.open(dimension=2, reference="origin"),
            )
            return await one.observe(arriving(), batch=100), await other.observe(X, y)

    assert same(*asyncio.run(both()))


def test_one_point_alone(session: Session) -> None:
    assert session.observe([0.1, -0.2], -1).predictions == [1]
    assert session.observe(np.array([0.1, -0.2]), np.int64(-1)).session.observed == 2
    assert session.predict([0.1, -0.2]).predictions == [-1]
    assert session.predict(np.array([0.1, -0.2])).scores.shape == (1,)


def test_named_labels_and_many(client: Client) -> None:
    session = client.sessions.open(dimension=2, reference="origin", labels=["a", "b", 3])
    X, _ = stream(900)
    y = [("a", "b", 3)[i] for i in np.digitize(X[:, 0], [-0.2, 0.2])]
    observed = session.observe(X, y)
    assert observed.scores is not None and observed.scores.shape == (900, 3)
    predicted = session.predict(X, batch=100)
    assert set(predicted.predictions.tolist()) == {"a", "b", 3}
    assert predicted.scores.shape == (900, 3)
    assert session.model().weights.shape == (3, 2)
    proof = session.certificate()
    assert proof.classes is not None and [each.label for each in proof.classes] == ["a", "b", 3]


def heard(http: httpx.Client | httpx.AsyncClient) -> list[httpx.Response]:
    """Every answer from now on"""
    found: list[httpx.Response] = []
    if isinstance(http, httpx.Client):
        http.event_hooks = {"response": [found.append]}
    else:

        async def hook(answer: httpx.Response) -> None:
            found.append(answer)

        http.event_hooks = {"response": [hook]}
    return found


def kinds(answers: list[httpx.Response]) -> list[str]:
    """The types of the bodies that were sent"""
    return [answer.request.headers["content-type"] for answer in answers]


def test_many_points_go_raw_and_few_as_json_with_the_same_bits(client: Client) -> None:
    n = MANY // 2
    X, y = stream(n)
    whole, parts = (
        client.sessions.open(dimension=2, reference="origin"),
        client.sessions.open(dimension=2, reference="origin"),
    )
    answers = heard(client.http)
    raw = whole.observe(X, y)
    assert kinds(answers) == ["application/octet-stream"]
    assert same(parts.observe(X.tolist(), y.tolist(), batch=n // 4), raw)
    assert kinds(answers)[1:] == ["application/json"] * 4
    assert whole.snapshot()["state"] == parts.snapshot()["state"]
    answers.clear()
    assert np.array_equal(whole.predict(X).scores, parts.predict(X, batch=n // 4).scores)
    assert kinds(answers) == ["application/octet-stream"] + ["application/json"] * 4


def test_single_precision_and_integers_are_what_they_are(client: Client) -> None:
    X, y = stream(MANY)
    X = X.astype(np.float32)
    one, other = (
        client.sessions.open(dimension=2, reference="origin"),
        client.sessions.open(dimension=2, reference="origin"),
    )
    assert same(one.observe(X, y), other.observe(X.astype(np.float64).tolist(), y.tolist(), batch=50))
    assert one.predict(np.zeros((MANY, 2), dtype=int)).predictions.shape == (MANY,)


def test_a_summary_has_no_columns(session: Session) -> None:
    X, y = stream(2000)
    parts = list(session.stream(X, y, columns=False, batch=500))
    assert [part.session.observed for part in parts] == [500, 1000, 1500, 2000]
    assert all(part.scores is None and part.predictions is None for part in parts)
    assert sum(part.mistakes for part in parts) == session.metrics().mistakes


def test_a_key_of_ones_own_says_the_same_again(client: Client, session: Session) -> None:
    X, y = stream(900)
    first = session.observe(X, y, key="offset 17", batch=400)
    again = client.sessions.get(session.id).observe(X, y, key="offset 17", batch=400)
    assert again.replayed and not first.replayed
    assert same(first, again)
    with pytest.raises(problems.KeyReused):
        session.observe(X[1:], y[1:], key="offset 17", batch=400)
    session.observe(X, y, batch=400)
    assert session.refresh().observed == 1800


def test_a_stored_answer_tells_of_the_past_and_is_not_taken_for_a_loss(session: Session) -> None:
    first = session.observe([0.1, 0.2], 1, key="mine")
    session.observe(*stream(50))
    assert same(session.observe([0.1, 0.2], 1, key="mine"), first)


def test_points_that_answer_a_model_are_taken_up_to_its_change(client: Client) -> None:
    session = client.sessions.open(dimension=2, reference="origin")
    model = session.model()
    X, y = stream(400)
    answers, at = heard(client.http), 0
    while at < len(X):
        observed = session.observe(X[at:], y[at:], if_match=model, batch=64, columns=False)
        assert observed.accepted > 0
        at += observed.accepted
        changed = session.model()
        assert (changed.version > model.version) == (at < len(X) or observed.session.version > model.version)
        model = changed
    assert {answer.status_code for answer in answers} == {200}, "a batch was sent that was known to be stale"
    plain = client.sessions.open(dimension=2, reference="origin")
    plain.observe(X, y)
    assert np.array_equal(plain.model().weights, model.weights)
    with pytest.raises(problems.StaleModel) as stale:
        session.observe(X, y, if_match=0)
    assert stale.value.version == model.version
    assert stale.value.accepted == 0


def test_a_model_that_others_change_between_two_batches_ends_the_call_with_what_was_accepted(session: Session) -> None:
    session.observe([0.5, 0.0], -1)
    session.observe([0.5, 0.0], 1)
    version = session.model().version
    right = session.predict([[0.3, 0.1]]).predictions.tolist()
    parts = session.stream([[0.3, 0.1]] * 6, right * 6, if_match=version, batch=2)
    assert next(parts).accepted == 2
    wrong = -right[0]
    session.observe([[0.3, 0.1]] * 20, [wrong] * 20)
    assert list(parts) == []


def test_an_index_counts_all_points_of_a_call_and_what_was_learned_is_told(session: Session) -> None:
    X, y = stream(700)
    X[555] = [0.9, 0.9]
    with pytest.raises(problems.PointOutsideBall) as outside:
        session.observe(X, y, batch=100)
    error = outside.value
    assert (error.index, error.accepted) == (555, 500)
    assert error.limit < 1 < error.norm == pytest.approx(0.9 * 2**0.5)
    assert session.refresh().observed == 500


def test_what_is_no_stream_is_refused_by_the_service_whatever_its_size(session: Session) -> None:
    X, y = stream(MANY)
    bad: list[tuple[type[Problem], Any, Any]] = [
        (problems.EmptyBatch, [], []),
        (problems.EmptyBatch, iter([]), iter([])),
        (problems.EmptyBatch, np.empty((0, 2)), []),
        (problems.DimensionMismatch, [[0.1, 0.2, 0.3]], [1]),
        (problems.DimensionMismatch, np.zeros((MANY, 3)), y),
        (problems.DimensionMismatch, [*X.tolist(), [0.1]], [*y, 1]),
        (problems.NonFinite, [[0.1, float("nan")]], [1]),
        (problems.NonFinite, np.where(np.arange(MANY)[:, None] == 70, np.inf, X), y),
        (problems.NotANumber, [[0.1, "0.2"]], [1]),
        (problems.NotANumber, [*X.tolist(), [False, 0.1]], [*y, 1]),
        (problems.NotANumber, X.astype(str), y),
        (problems.UnknownLabel, [[0.1, 0.2]], [7]),
        (problems.UnknownLabel, X, y > 0),
        (problems.UnknownLabel, X, y / 2),
        (problems.LengthMismatch, [[0.1, 0.2]], [1, 1]),
        (problems.LengthMismatch, X, y[1:]),
        (problems.LengthMismatch, iter(X), y[1:]),
    ]
    for expected, points, labels in bad:
        with pytest.raises(expected) as refused:
            session.observe(points, labels)
        assert refused.value.accepted == 0
        with pytest.raises(expected):
            session.observe(points, labels, batch=10**6)
    assert session.refresh().observed == 0
    with pytest.raises(problems.LengthMismatch):
        session.observe(X, y[1:], batch=100)
    with pytest.raises(ValueError, match="at least one point"):
        session.observe(X, y, batch=0)


def test_truth_is_shown_and_not_learned(session: Session) -> None:
    session.observe([[0.1, 0.2]], [1], truth=[[0.0, 0.1]])
    session.observe([0.1, 0.2], 1, truth=[0.3, 0.1])
    shown = session.events(after="0-0")
    found = [next(shown), next(shown)]
    shown.close()
    assert [each.truth for each in found if isinstance(each, Commit)] == [[[0.0, 0.1]], [[0.3, 0.1]]]


# --------------------------------------------------------------------------------------- predict, and the late labels


def test_predictions_come_before_labels(session: Session) -> None:
    assert session.predict([0.1, 0.2]).cold
    with pytest.raises(problems.NoProbabilities, match="online"):
        session.predict_proba([0.1, 0.2])
    X, y = stream(6)
    predicted = session.predict(X, ids=range(6))
    assert predicted.expires_in is not None and predicted.expires_in > 0
    assert predicted.version == 0
    labelled = session.label([0, 1, 2, 9], y[:4])
    assert (labelled.ids, labelled.unknown, labelled.accepted) == ((0, 1, 2), (9,), 3)
    assert session.label([2, 3], y[2:4]).already_learned == (2,)
    assert session.label(np.array([4, 5]), y[4:], columns=False).scores is None
    assert session.refresh().observed == 6
    assert not session.predict([0.1, 0.2]).cold
    session.predict([0.3, 0.2], ids="alone")
    with pytest.raises(problems.IdReused):
        session.predict([0.3, 0.3], ids=["alone"])
    assert session.label(["alone"], [1], key="once").ids == ("alone",)
    assert session.label(["alone"], [1], key="once").replayed


def test_points_from_an_iterator_are_predicted(session: Session) -> None:
    X, y = stream(250)
    session.observe(X, y)
    assert np.array_equal(session.predict(iter(X), batch=100).scores, session.predict(X).scores)


# ------------------------------------------------------------------------------------- model, metrics, certificate, …


def test_a_model_comes_over_the_wire_only_if_it_has_changed(client: Client, session: Session) -> None:
    answers = heard(client.http)
    first = session.model()
    assert session.model() is first
    assert [answer.status_code for answer in answers] == [200, 304]
    session.observe([0.1, 0.2], -1)
    second = session.model()
    assert (second.version, answers[-1].status_code) == (first.version + 1, 200)
    assert second.document["weights"] == second.weights.tolist()
    with pytest.raises(ValueError, match="read-only"):
        second.weights[0] = 1


def test_metrics_certificate_and_picture(session: Session) -> None:
    X, y = stream(2500)
    session.observe(X, y)
    metrics = session.metrics()
    assert metrics.observed == 2500 == metrics.confusion.sum()
    assert metrics.window.points == 1000
    assert [each.label for each in metrics.classes] == [-1, 1]
    assert sum(metrics.log.mistakes) <= metrics.mistakes
    proof = session.certificate(0.1)
    assert (proof.margin, proof.mistakes, proof.observed) == (0.1, metrics.mistakes, 2500)
    assert session.certificate().bound is None
    with pytest.raises(problems.InvalidParameter) as wrong:
        session.certificate(-1.0)
    assert wrong.value.name == "margin"
    assert session.disk_svg().lstrip().startswith("<svg")


def test_a_notebook_shows_a_sessions_disk(client: Client, tmp_path: Path) -> None:
    session = client.sessions.open(dimension=2, name="a <b>bold</b> name")
    session.observe([[0.1, 0.2]], [1])
    disk = session.disk()
    assert disk.save(tmp_path / "disk.svg").read_text() == session.disk_svg() == disk.svg
    html = session._repr_html_()
    if html is not None and "await" in html:  # of an AsyncSession: what is known without asking, and how to ask
        html = disk._repr_html_()
    assert html == disk._repr_html_()
    [alt], [data] = re.findall('alt="(.*?)"', html), re.findall('src="data:image/svg\\+xml;base64,(.*?)"', html)
    assert alt == "a &lt;b&gt;bold&lt;/b&gt; name" and b64decode(data).decode() == disk.svg
    session.end()
    assert "await" in (gone := session._repr_html_() or "await") and "<img" not in gone  # its repr is shown instead


def test_a_budget_that_is_estimated_is_begun_anew(client: Client) -> None:
    session = client.sessions.open(
        algorithm="strategic", dimension=2, reference="origin", budget={"estimate": {"initial": 2.0}}
    )
    version = session.model().version
    assert session.change(budget={"estimate": {"initial": 3.0}}).version == version + 1
    assert session.model().budget == pytest.approx(3.0)


# -------------------------------------------------------------------------------------------------------------- events


def test_events_tell_what_happens_until_the_end(kind: str, small: Running) -> None:
    with made(kind, small.url) as client:
        session = client.sessions.open(
            algorithm="strategic", dimension=2, reference="origin", budget={"estimate": {"initial": 2.0}}
        )
        tell_until_the_end(session)


def tell_until_the_end(session: Session) -> None:
    events = session.events()
    reset = next(events)
    assert isinstance(reset, Reset)
    assert (reset.session.id, reset.model.version) == (session.id, 0)
    session.observe([[0.1, 0.2], [0.3, 0.1]], [-1, 1])
    commit = next(events)
    assert isinstance(commit, Commit)
    assert (commit.first, commit.observed, commit.labels.tolist()) == (0, 2, [-1, 1])
    assert commit.version == session.model().version > reset.model.version
    session.change(budget={"estimate": {"initial": 3.0}})
    changed = next(events)
    assert isinstance(changed, ModelChanged)
    assert (changed.kind, changed.version) == ("budget", session.model().version)
    session.end()
    assert isinstance(next(events), Ended)
    assert list(events) == []


def test_events_go_on_behind_the_one_that_is_named(session: Session) -> None:
    for i in range(5):
        session.observe([0.1, 0.2], (-1) ** i)
    kept = session.events(after="0-0")
    first = [next(kept) for _ in range(5)]
    kept.close()
    assert [each.observed for each in first if isinstance(each, Commit)] == [1, 2, 3, 4, 5]
    later = session.events(after=first[2])
    assert [next(later).id, next(later).id] == [first[3].id, first[4].id]
    later.close()
    unknown = session.events(after="1-7")  # no such entry
    assert isinstance(next(unknown), Reset)
    unknown.close()


def test_a_session_that_is_gone_has_no_events(client: Client) -> None:
    session = client.sessions.open(dimension=2, reference="origin")
    session.end()
    with pytest.raises(problems.SessionGone):
        next(session.events())


def test_an_alarm_is_told_with_the_points_that_raised_it(session: Session) -> None:
    X, _ = stream(600)
    y = np.where(X[:, 0] > 0, 1, -1)
    session.observe(X, y)
    for i in range(0, 600, 100):
        session.observe(X[i : i + 100], np.random.default_rng(i).choice([-1, 1], 100))
    events = session.events(after="0-0")
    found = [next(events) for _ in range(7)]
    events.close()
    commits = [each for each in found if isinstance(each, Commit)]
    assert any(each.alarms for each in commits[1:]) and not commits[0].alarms
    assert all(each.first <= at <= each.observed for each in commits for at in each.alarms)


STREAM = (
    "retry: 250\n\n: hello\n\nevent: commit\nid: 1-0\ndata: {\n"
    'data: "ä": 1}\n\n\nid: 2-0\r\ndata: 2\r\n\r\nevent: a\rdata: x\rdata\r\r:\n\n'
)


@given(st.sets(st.integers(1, len(STREAM.encode()) - 1)))
def test_a_stream_reads_the_same_however_it_is_cut(cuts: set[int]) -> None:
    parser, data = Parser(), STREAM.encode()
    edges = [0, *sorted(cuts), len(data)]
    found = [message for a, b in pairwise(edges) for message in parser.feed(data[a:b])]
    assert [(m.name, m.id, m.data) for m in found if m.name] == [
        ("commit", "1-0", '{\n"ä": 1}'),
        ("message", "2-0", "2"),
        ("a", "2-0", "x\n"),
    ]
    assert sum(not message.name for message in found) == 2
    assert parser.retry == 0.25


# ---------------------------------------------------------------------------------------------------------------- fits


def test_a_fit_is_waited_for_used_and_promoted(
    client: Client, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = stream(400)
    session.observe(X, y)
    fit = session.fit(loss="squared_hinge", C=5.0, reference="closest")
    assert fit.status in ("queued", "running", "done")
    result = fit.wait(60, progress=True)
    assert f"fit {fit.id}: done" in capsys.readouterr().err
    assert fit.status == "done"
    assert fit.result.certificate == result.certificate
    assert result.certificate.gap <= 1e-6
    assert result.training_accuracy > 0.8
    chances = session.predict_proba(X, model=fit)
    assert chances.shape == (400, 2)
    assert np.abs(chances.sum(axis=1) - 1).max() <= 4 * np.finfo(float).eps
    predicted = session.predict(X, model=fit.id)
    assert np.array_equal(predicted.predictions, np.where(predicted.scores >= 0, 1, -1))
    assert [each.id for each in session.fits()] == [fit.id]
    version = session.model().version
    assert session.promote(fit).version == version + 1
    assert session.promote(fit.id).version == version + 2
    events = session.events(after="0-0")
    told = [next(events) for _ in range(4)]
    events.close()
    assert [each.status for each in told if isinstance(each, FitChanged)] == ["queued", "running", "done"]


def test_a_fit_of_points_of_its_own(session: Session) -> None:
    X, y = stream(300)
    y = np.where(X[:, 0] > 0, 1, -1)
    fit = session.fit(X.tolist(), y, kind="svm", reference=[0.1, 0.0], C=100.0, probabilities=False)
    result = fit.wait(60)
    assert result.references is not None and result.references.tolist() == [[0.1, 0.0]]
    with pytest.raises(problems.NoProbabilities, match=fit.id):
        session.predict_proba(X, model=fit)
    with pytest.raises(problems.UnknownLabel) as unknown:
        session.fit(X, np.where(np.arange(300) == 7, 5, y))
    assert (unknown.value.index, unknown.value.value) == (7, "5")
    with pytest.raises(problems.LengthMismatch):
        session.fit(X, y[1:])


def test_a_fit_that_fails_says_why(session: Session) -> None:
    session.observe([[0.1, 0.1], [0.1, 0.1]], [1, -1])
    fit = session.fit(margin="hard")
    with pytest.raises(problems.NotSeparable):
        fit.wait(60)
    assert fit.status == "failed"
    with pytest.raises(problems.NotSeparable):
        _ = fit.result
    with pytest.raises(problems.FitNotReady):
        session.promote(fit)
    with pytest.raises(problems.UnknownFit):
        session.predict([0.1, 0.1], model="0123456789abcdef")


def test_the_same_key_is_the_same_fit_and_a_cancelled_one_has_no_result(session: Session) -> None:
    X, y = stream(10_000)
    session.observe(X, y, columns=False)
    fit = session.fit(reference="cv", key="mine")
    assert session.fit(reference="cv", key="mine").id == fit.id
    with pytest.raises(problems.NotYet):
        _ = fit.result
    with pytest.raises(problems.NotYet):
        fit.wait(0)
    fit.cancel()
    assert fit.status == "cancelled"
    with pytest.raises(problems.FitCancelled):
        fit.wait(10)


# ------------------------------------------------------------------------------------------------------------ problems


def sample(kind: type[errors.HorocycleError]) -> errors.HorocycleError:
    """One of each, with every member that it can have"""
    values = {"int": 3, "float": 0.5, "str": "x", "object": 1, "str | int": "x", "int | None": 3}
    parameters = [p for p in inspect.signature(kind).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    return kind(*(values.get(str(p.annotation)) for p in parameters))  # type: ignore[arg-type]


def test_every_problem_of_the_service_has_its_exception_and_the_other_way_round() -> None:
    ours = {kind.slug(): kind for kind in leaves()}
    theirs = {slug(kind): kind for kind in STATUS}
    assert set(theirs) - set(ours) == set()
    soon = {"unauthenticated", "session-quota"}
    assert set(ours) - set(theirs) <= soon, "the service has them no more"
    for name, kind in theirs.items():
        document = told(sample(kind))
        raised = problem(document)
        assert type(raised) is ours[name]
        assert (raised.status, str(raised)) == (STATUS[kind], document["detail"])
        assert set(raised.members) <= raised.named(), f"{name} has members without a name here"
        for member, value in raised.members.items():
            assert getattr(raised, member) == value


def below(kind: type[Exception]) -> Iterator[str]:
    """The names of all kinds of this exception"""
    for each in kind.__subclasses__():
        yield each.__name__
        yield from below(each)


def test_every_exception_is_drawn_in_the_tree() -> None:
    drawn = set(re.findall(r"\b[A-Z][A-Za-z]+\b", str(problems.__doc__).split("HorocycleError\n", 1)[1]))
    assert set(below(problems.HorocycleError)) <= drawn


def test_the_package_exports_the_clients_and_every_exception() -> None:
    assert clients.__all__ == sorted(clients.__all__)
    assert set(clients.__all__) == {"AsyncClient", "Client", "HorocycleError", *below(problems.HorocycleError)}
    assert clients.Client is Client and clients.AsyncClient is AsyncClient


def test_a_problem_of_an_unknown_kind_is_a_problem() -> None:
    found = problem({"type": "/problems/too-beautiful", "title": "Too beautiful", "status": 418, "shine": 7})
    assert (type(found), found.status, found.members, str(found)) == (Problem, 418, {"shine": 7}, "Too beautiful")


# ------------------------------------------------------------------------------------------- without a service: retries


def learned(observed: int, version: int = 0, **headers: str) -> httpx.Response:
    session = {"observed": observed, "mistakes": 0, "updates": 0, "version": version}
    return httpx.Response(200, json={"accepted": 1, "mistakes": 0, "session": session}, headers=headers)


class Script:
    """A service that says what it is told to, one after another; and a clock that only sleep moves"""

    def __init__(self, kind: str, *replies: Any, retry: Retry = Retry()) -> None:  # noqa: B008 (frozen)
        self.kind, self.replies, self.requests, self.slept = kind, [*replies], list[httpx.Request](), list[float]()
        self.retry, self.now = retry, 0.0

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        answer: httpx.Response = reply(request) if callable(reply) else reply
        return answer

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)

    def __enter__(self) -> Client:
        transport, self.rng = httpx.MockTransport(self.handle), random.Random(0)
        http: Any = (httpx.Client if self.kind == "sync" else httpx.AsyncClient)(transport=transport)
        sleep: Any = self.sleep if self.kind == "sync" else self.asleep
        options = {"http": http, "sleep": sleep, "clock": lambda: self.now, "rng": self.rng, "retry": self.retry}
        self._made = made(self.kind, "http://stub", **options)
        return self._made.__enter__()

    def __exit__(self, *_: object) -> None:
        self._made.__exit__(None, None, None)


def busy(status: int = 503, after: str | None = None, **headers: str) -> httpx.Response:
    return httpx.Response(status, headers=headers if after is None else {"Retry-After": after, **headers})


def test_what_may_pass_is_tried_again_with_the_same_key_and_longer_waits(kind: str) -> None:
    lost = [httpx.ConnectError("no"), httpx.ReadTimeout("late"), httpx.RemoteProtocolError("cut"), httpx.ReadError("")]
    again = [busy(429), busy(502), busy(503)]
    script = Script(kind, httpx.Response(200, json=INFO), *lost, *again, learned(1))
    with script as client:
        session = client.sessions.get("s")
        assert session.observe([0.1, 0.2], 1, columns=False).accepted == 1
    sent = script.requests[1:]
    assert len({request.headers["idempotency-key"] for request in sent}) == 1
    assert len({request.content for request in sent}) == 1
    shares = [seconds / min(5, 0.1 * 2**i) for i, seconds in enumerate(script.slept)]
    assert len(set(shares)) == 7
    assert 0.5 <= min(shares) < max(shares) <= 1


@pytest.mark.parametrize("status", [400, 404, 408, 409, 412, 422, 500, 501])
def test_what_will_not_pass_is_not_tried_again(kind: str, status: int) -> None:
    script = Script(kind, httpx.Response(status, text="a proxy says no"))
    with script as client, pytest.raises(Problem, match="a proxy says no") as refused:
        client.sessions.get("s")
    assert (type(refused.value), refused.value.status) == (Problem, status)
    assert script.slept == []


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ({"after": "3"}, 3.0),
        ({"after": "Wed, 21 Oct 2015 07:28:10 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 10.0),
        ({"after": "Wed, 21 Oct 2015 07:28:10 GMT"}, 0.0),
        ({"after": "soon"}, 0.0),
        ({"after": "-5"}, 0.0),
        ({"after": "inf"}, 0.0),
    ],
)
def test_the_service_says_when_to_come_back(kind: str, header: dict[str, str], seconds: float) -> None:
    script = Script(kind, busy(**header), httpx.Response(200, json=INFO))  # type: ignore[arg-type]
    with script as client:
        client.sessions.get("s")
    assert script.slept == [pytest.approx(seconds, abs=0.1)]


def test_patience_ends(kind: str) -> None:
    problem = {"type": "/problems/store-full", "status": 503, "detail": "no room"}
    full = httpx.Response(503, json=problem, headers={"content-type": "application/problem+json", "Retry-After": "25"})
    script = Script(kind, full, full, full, retry=Retry(patience=60))
    with script as client, pytest.raises(problems.StoreFull, match="no room"):
        client.sessions.get("s")
    assert script.slept == [25, 25]
    script = Script(kind, *[busy()] * 3, retry=Retry(attempts=3))
    with script as client, pytest.raises(Problem, match="status 503"):
        client.sessions.get("s")
    assert len(script.requests) == 3
    with pytest.raises(ValueError, match="attempt"):
        Retry(attempts=0)


def test_who_does_not_answer_is_unreachable_and_who_answers_nonsense_is_not_horocycle(kind: str) -> None:
    script = Script(kind, *[httpx.ReadTimeout("")] * 2, retry=Retry(attempts=2))
    with script as client, pytest.raises(problems.Unreachable, match=r"http://stub does not answer.*2 times.*timeout"):
        client.sessions.get("s")
    for body in (b"<html>It works!</html>", b"[]", b"{}", b'{"labels": 7}'):
        with Script(kind, httpx.Response(200, content=body)) as client:
            with pytest.raises(problems.UnexpectedAnswer, match="is this Horocycle"):
                client.sessions.get("s")
    with Script(kind, httpx.Response(301, headers={"location": "/there"})) as client, pytest.raises(Problem):
        client.sessions.get("s")
    with pytest.raises(ValueError, match="http://"):
        Client("localhost:8000")


def test_a_key_for_the_service_is_sent_along(running: Running) -> None:
    seen: list[str] = []
    http = httpx.Client(event_hooks={"request": [lambda request: seen.append(request.headers["authorization"])]})
    with Client(running.url + "/", api_key="secret", http=http) as client:
        client.sessions.open(dimension=2, reference="origin")
    assert seen == ["Bearer secret"]


# --------------------------------------------------------------------------- without a service: opened once, ended once


def taken() -> httpx.Response:
    problem = {"type": "/problems/session-exists", "status": 409, "session": "x"}
    return httpx.Response(409, json=problem, headers={"content-type": "application/problem+json"})


def test_a_session_whose_reply_was_lost_is_recognised(kind: str) -> None:
    def shown(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={**INFO, "id": request.url.path.removeprefix("/sessions/")})

    script = Script(kind, httpx.ReadError("lost"), taken(), shown)
    with script as client:
        session = client.sessions.open(dimension=2, reference="origin")
    first, second, _ = script.requests
    assert first.content == second.content
    assert session.id == json.loads(first.content)["id"]


@pytest.mark.parametrize("first", [httpx.ConnectError("it never got there"), 429, 503])
def test_an_id_that_was_taken_before_is_not_ours(kind: str, first: int | Exception) -> None:
    """Nothing was done at the first try: it was not sent, or the service itself says so"""
    problem = {"type": "/problems/store-unavailable", "status": 503}
    headers = {"content-type": "application/problem+json"}
    refused = first if isinstance(first, Exception) else httpx.Response(first, json=problem, headers=headers)
    with Script(kind, refused, taken()) as client, pytest.raises(problems.SessionExists):
        client.sessions.open(dimension=2, reference="origin", id="x")


@pytest.mark.parametrize(
    "other", [{"observed": 3}, {"dimension": 3, "reference": "origin"}, {"labels": ["a", "b"]}, {"curvature": 2.0}]
)
def test_another_session_of_that_id_is_not_ours(kind: str, other: dict[str, Any]) -> None:
    script = Script(kind, *[httpx.ReadTimeout("lost"), taken(), httpx.Response(200, json={**INFO, **other})])
    with script as client, pytest.raises(problems.SessionExists):
        client.sessions.open(dimension=2, reference="origin", id="s")
    script = Script(kind, *[httpx.ReadTimeout("lost"), taken(), httpx.Response(200, json=INFO)])
    with script as client:
        assert client.sessions.open(dimension=2, reference="origin", id="s").id == "s"


@pytest.mark.parametrize(
    "asked",
    [
        {"algorithm": "perceptron", "reference": "origin", "a": 2.0, "budget": 3.0, "name": "n"},
        {"algorithm": "second_order", "a": 0, "reference": [0.25, 0.5], "labels": [1, "x", 3], "keep_points": 5},
        {"algorithm": "strategic", "budget": 2, "ttl_seconds": 100},
        {"algorithm": "strategic", "budget": {"estimate": {}}},
        {"algorithm": "perceptron", "reference": {"learn": {"warmup": 9}}},
        {"algorithm": "hyperboloid", "reference": "origin", "curvature": 0.5},
    ],
)
def test_the_service_shows_a_session_as_it_was_asked_for(http: httpx.Client, asked: dict[str, Any]) -> None:
    body = {"dimension": 2, "reference": "origin", **asked}
    answer = SessionInfo.read(http.post("/sessions", json=body).json())
    assert is_what_was_asked(answer, body)
    for name in {"algorithm", "reference", "labels", "budget", "name"} & set(asked):
        other = {"algorithm": "none", "reference": [0.1, 0.1], "labels": [7, 8], "budget": 7.0, "name": "other"}[name]
        if name in ("budget", "reference") and getattr(answer, name) is None:
            continue
        assert not is_what_was_asked(answer, {**body, name: other})


def test_the_defaults_are_the_services(http: httpx.Client) -> None:
    for algorithm in ("perceptron", "second_order", "strategic", "hyperboloid"):
        body = {"dimension": 2, "reference": "origin", "algorithm": algorithm}
        answer = SessionInfo.read(http.post("/sessions", json=body).json())
        assert is_what_was_asked(answer, body)
        assert not is_what_was_asked(
            answer, {"dimension": 2, "reference": "origin", "algorithm": algorithm, "keep_points": 5}
        )


def test_a_session_that_is_gone_after_a_lost_reply_was_ended(kind: str) -> None:
    problem = {"type": "/problems/session-gone", "status": 410, "session": "s"}
    gone = httpx.Response(410, json=problem, headers={"content-type": "application/problem+json"})
    script = Script(kind, httpx.Response(200, json=INFO), httpx.ReadError("lost"), gone, gone)
    with script as client:
        session = client.sessions.get("s")
        session.end()
        with pytest.raises(problems.SessionGone):
            session.end()


# ---------------------------------------------------------------------------- without a service: logs, forks, the past


class Logged(Stub):
    """Session s with 25 points, the first 5 of which are no longer kept; a fork of it is replaying for two polls"""

    ROWS = np.column_stack([np.linspace(-0.5, 0.5, 50).reshape(25, 2), np.arange(25) % 3])
    FIRST, LABELS = 5, ["a", "b", "c"]
    polls: int
    forks: list[dict[str, Any]]
    fate: dict[str, Any]

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, dict(parse_qsl(urlsplit(self.path).query))
        if path == "/sessions/s":
            self.answer({**INFO, "labels": self.LABELS, "observed": 25, "version": 9})
        elif path == "/sessions/s/log":
            self.page(int(query["from"]), int(query["limit"]), query["format"])
        elif path == "/sessions/s/at/7/model":
            self.answer({**INFO, "weights": [1.0, 2.0], "sigma": 2.0, "threshold": None, "version": 3})
        elif path == "/sessions/s/at/2/model":
            self.refuse(410, "log-trimmed", first=self.FIRST)
        else:  # the fork
            type(self).polls += 1
            replaying = {"status": "replaying", "progress": self.polls / 4, "observed": self.polls}
            self.answer({**self.forks[-1], **(replaying if self.polls < 3 else self.fate)})

    def page(self, start: int, limit: int, form: str) -> None:
        assert form == "npy"
        if start < self.FIRST:
            return self.refuse(410, "log-trimmed", first=self.FIRST)
        end, content = min(start + limit, 25), io.BytesIO()
        np.save(content, self.ROWS[start:end])
        headers = {"Horocycle-From": str(start), "Horocycle-To": str(end)}
        headers |= {"Horocycle-Next": str(end)} if end < 25 else {}
        self.answer(content.getvalue(), headers, kind="application/x-npy")

    def do_POST(self) -> None:
        body = self.body()
        if self.path.endswith("/observe"):
            return self.refuse(409, "session-replaying", session=self.forks[-1]["id"], progress=0.5)
        settings = {name: value for name, value in body["fork"].items() if name not in ("session", "at")}
        self.forks.append({**INFO, "labels": self.LABELS, **settings, "asked": body})
        self.answer({**self.forks[-1], "status": "replaying", "progress": 0.0}, status=201)


@contextmanager
def logged(kind: str, **fate: Any) -> Iterator[tuple[Session, type[Logged]]]:
    own = {"polls": 0, "forks": [], "fate": {"status": "live", "observed": 25, **fate}}
    handler: type[Logged] = type("Handler", (Logged,), own)
    sleep: Any = (lambda seconds: None) if kind == "sync" else (lambda seconds: asyncio.sleep(0))
    with serving(handler) as url, made(kind, url, sleep=sleep) as client:
        yield client.sessions.get("s"), handler


def test_the_log_is_read_a_page_at_a_time_and_goes_on_where_it_was_left(kind: str) -> None:
    with logged(kind) as (session, stub):
        pages = list(session.log(start=5, page=8))
        assert [(page.start, page.end) for page in pages] == [(5, 13), (13, 21), (21, 25)]
        assert np.array_equal(np.concatenate([page.X for page in pages]), stub.ROWS[5:, :2])
        assert np.concatenate([page.labels for page in pages]).tolist() == ["abc"[i % 3] for i in range(5, 25)]
        assert next(iter(session.log(start=pages[0].end))).start == 13
        assert list(session.log(start=25)) == []
        with pytest.raises(problems.LogTrimmed) as trimmed:
            list(session.log())
        assert trimmed.value.first == 5


def test_labels_that_were_added_meanwhile_are_known_to_the_log(kind: str) -> None:
    with logged(kind) as (session, stub):
        stub.ROWS = np.column_stack([stub.ROWS[:, :2], np.full(25, 3)])
        stub.LABELS = [*stub.LABELS, "d"]
        assert set(next(iter(session.log(start=5))).labels) == {"d"}


def test_a_model_of_the_past_is_not_taken_for_a_loss(kind: str) -> None:
    with logged(kind) as (session, _):
        assert session.model(at=7).version == 3 < session.info.version
        with pytest.raises(problems.LogTrimmed):
            session.model(at=2)
        assert session.refresh().version == 9


def test_a_fork_is_waited_for(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with logged(kind) as (session, stub):
        fork = session.fork(at=20, algorithm="second_order", name="what if")
        asked = {"session": "s", "at": 20, "algorithm": "second_order", "name": "what if", "id": fork.id}
        assert stub.forks[0]["asked"] == {"fork": asked}
        assert (fork.info.status, fork.info.progress) == ("replaying", 0.0)
        with pytest.raises(problems.SessionReplaying) as refused:
            fork.observe([0.1, 0.2], "a")
        assert (refused.value.session, refused.value.progress) == (fork.id, 0.5)
        with pytest.raises(problems.NotYet, match="is replaying after 0 s, 25% done"):
            fork.wait(0)
        info = fork.wait(progress=True)
        assert (info.status, info.observed, fork.info) == ("live", 25, info)
        shown = capsys.readouterr().err
        assert f"session {fork.id}: replaying" in shown and "100%" in shown
        session.fork()
        assert stub.forks[1]["asked"]["fork"].keys() == {"session", "id"}


def test_a_fork_that_fails_says_why(kind: str) -> None:
    failure = {"type": "/problems/log-trimmed", "status": 410, "detail": "gone meanwhile", "first": 7}
    with logged(kind, status="failed", failure=failure) as (session, _):
        with pytest.raises(problems.LogTrimmed, match="gone meanwhile"):
            session.fork(keep_points=0).wait()


@pytest.mark.parametrize(
    ("shown", "ours"),
    [
        ({"status": "replaying", "observed": 3, "name": "n"}, True),
        ({"observed": 20, "name": "n"}, True),
        ({"observed": 21, "name": "n"}, False),
        ({"observed": 20, "name": "another"}, False),
    ],
)
def test_a_fork_whose_reply_was_lost_is_recognised(shown: dict[str, Any], ours: bool) -> None:
    info = SessionInfo.read({**INFO, **shown})
    assert is_what_was_asked(info, {"id": "s", "name": "n"}, {"session": "p", "at": 20}) == ours


def test_events_of_a_newer_service_are_read_as_far_as_they_are_known() -> None:
    sent = {"from": 0, "observed": 2, "mistakes": 1, "updates": 1, "version": 1, "status": "live", "requests": []}
    sent |= {"points": [[0.1, 0.2]], "labels": [1], "predictions": [-1], "alarms": [1], "new": "member"}
    commit = read_event("2-1", "commit", sent)
    assert isinstance(commit, Commit) and (commit.first, commit.alarms, commit.truth) == (0, (1,), None)
    changed = read_event("2-2", "model", {"kind": "promotion", "fit": "f", "version": 2, "observed": 2})
    assert isinstance(changed, ModelChanged) and (changed.fit, changed.observed) == ("f", 2)
    settings = read_event("2-3", "session", {"kind": "fork"})
    assert isinstance(settings, SessionChanged) and settings.kind == "fork"
    for data in ({"x": 1}, [1, 2], None):
        unknown = read_event("2-4", "eclipse", data)  # type: ignore[arg-type]
        assert (type(unknown), unknown.name, unknown.data) == (Event, "eclipse", data)


# ------------------------------------------------------------------------------- without a service: what goes backwards


def test_a_session_that_goes_backwards_says_so_once(kind: str) -> None:
    replies = [
        *(httpx.Response(200, json={**INFO, "observed": 9}), learned(10, 5, **{"Horocycle-Epoch": "7"})),
        learned(4, 5, **{"Horocycle-Epoch": "8"}),
        *(learned(5, 6, **{"Horocycle-Epoch": "8"}), learned(6, 2, **{"Horocycle-Epoch": "8"})),
        *(learned(7, 3, **{"Horocycle-Epoch": "3"}), learned(8, 3, **{"Horocycle-Epoch": "3"})),
    ]
    with Script(kind, *replies) as client:
        session = client.sessions.get("s")
        told: list[tuple[str, int, int]] = []
        for _ in range(6):
            try:
                session.observe([0.1, 0.2], 1, columns=False)
            except problems.WentBackwards as error:
                assert error.answer.accepted == error.accepted == 1
                told.append((error.what, error.was, error.now))
    assert told == [("observed", 10, 4), ("version", 6, 2), ("epoch", 8, 3)]


def test_every_answer_about_a_session_is_checked(kind: str) -> None:
    """Two handles of one session know the same"""
    model = {**INFO, "weights": [0.0, 0.0], "sigma": 2.0, "threshold": None, "version": 1}
    replies = [
        httpx.Response(200, json={**INFO, "observed": 9, "version": 3}),
        httpx.Response(200, json={**INFO, "observed": 8, "version": 3}),
        httpx.Response(200, json={**INFO, "observed": 9, "version": 3}),
        httpx.Response(200, json=model),
        httpx.Response(200, json={"predictions": [1], "scores": [0.1]}, headers={"etag": '"0"'}),
        httpx.Response(204, headers={"horocycle-epoch": "1"}),
    ]
    with Script(kind, *replies) as client:
        first = client.sessions.get("s")
        with pytest.raises(problems.WentBackwards, match="observed was 9 and is 8"):
            client.sessions.get("s")
        second = client.sessions.get("s")
        with pytest.raises(problems.WentBackwards, match="version was 3 and is 1"):
            second.model()
        with pytest.raises(problems.WentBackwards, match="version was 1 and is 0"):
            first.predict([0.1, 0.2])
        first.end()


steps = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30)


@given(steps)
def test_answers_that_overlap_may_come_in_any_order(steps: list[tuple[int, bool]]) -> None:
    """Requests of four threads on a service that never loses anything: whatever overlaps, nothing is raised. And a
    service that forgets everything is found out by the next request that is sent."""
    marks, observed = Marks("s"), 0
    flying: dict[int, tuple[Position, int]] = {}
    highest = 0
    for thread, serves in steps:
        if thread not in flying:
            flying[thread] = (marks.highest, -1)
        elif serves and flying[thread][1] < 0:  # the service does it
            observed += 1
            flying[thread] = (flying[thread][0], observed)
        elif flying[thread][1] >= 0:  # the answer arrives
            sent_at, told = flying.pop(thread)
            marks.check(sent_at, Position(1, told, told))
            highest = max(highest, told)
    assert (marks.highest.observed or 0) == highest
    if highest:
        with pytest.raises(problems.WentBackwards):
            marks.check(marks.highest, Position(1, 0, 0))


def test_an_empty_page_is_the_last(kind: str) -> None:
    pages = [httpx.Response(200, json={"sessions": [INFO], "cursor": "next"})]
    pages += [httpx.Response(200, json={"sessions": [], "cursor": None})]
    script = Script(kind, *pages)
    with script as client:
        assert [session.id for session in client.sessions.list()] == ["s"]
    assert script.requests[1].url.params["cursor"] == "next"
    assert Page.read({"sessions": [], "cursor": None}).sessions == []


def test_batches_of_a_large_dimension_stay_small() -> None:
    parts = [len(part) for part in labelled(np.zeros((100, 4096)), np.ones(100), n=rows(4096, None))]
    assert sum(parts) == 100
    assert max(parts) * 4097 <= 1 << 18


# ---------------------------------------------------------------------------------------------------- the documentation


@pytest.mark.parametrize(("page", "least"), [("client.md", 10), ("tutorial.md", 3)])
def test_the_examples_of_the_documentation_run(
    running: Running, capsys: pytest.CaptureFixture[str], page: str, least: int
) -> None:
    """In order, in one namespace; and where a comment says what is printed, that is printed"""
    blocks = re.findall(r"^```python\n(.*?)^```", DOCS.with_name(page).read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > least
    namespace: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block.replace("http://127.0.0.1:8000", running.url), f"docs/{page}", "exec"), namespace)
        expected = re.findall(r"^ *print\(.*\)  # (.*)$", block, re.MULTILINE)
        shown = capsys.readouterr().out.splitlines()
        assert shown == expected or not expected, block


def test_every_method_has_an_example() -> None:
    code = "".join(re.findall(r"^```python\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL))
    for each in (surface.Sessions, surface.Session, surface.Fit):
        for name in vars(each):
            if not name.startswith("_"):
                assert re.search(rf"\.{name}\b", code), f"{each.__name__}.{name} has no example"
