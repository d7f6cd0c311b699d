"""Every route as a call (see transport.py): the only place that knows URLs and bodies.

Retries do nothing twice. Observing, late labels, fits and promotions carry an idempotency key, the same for every
attempt. A session is opened under an id that the client chooses. If a response was lost (`doubtful`) and the retry gets
409 session-exists, the client looks: a session with the settings that were asked for, and no points since, is the one
that the lost response was about. In the same way 410 session-gone, after a lost response to a DELETE, means done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol, TypedDict, TypeVar, cast
from urllib.parse import quote

import orjson

from clients.answers import (
    Array,
    Certificate,
    Document,
    FitInfo,
    Label,
    Labelled,
    LogPage,
    Metrics,
    Model,
    Observed,
    Page,
    Predicted,
    SessionInfo,
    binary_document,
    label_array,
)
from clients.arrays import plain
from clients.bodies import JSON, NDJSON, RAW, Batch, dump, encode, encode_raw, rows
from clients.events import Subscription
from clients.problems import (
    HorocycleError,
    InvalidInput,
    NoProbabilities,
    NotYet,
    SessionExists,
    SessionGone,
    StaleModel,
    UnknownFit,
    WentBackwards,
    WrongArgument,
    problem,
)
from clients.progress import Report
from clients.transport import Answer, Call, Channel, Send, Sleep

#: Seconds between two polls of a job: at first, and at the most.
POLL, POLL_MOST = 0.05, 1.0

C = TypeVar("C", Observed, Predicted)


class Settings(TypedDict, total=False):
    """What a session is to be; what is left out is the service's default."""

    algorithm: str  # auto (default), perceptron, second_order, softmax, gaussian, strategic, hyperboloid
    curvature: float
    reference: Any  # none; or a point, "origin", or {"learn": {"warmup": 200, "method": "hull"}}
    features: str  # hemisphere or lift; follows from the reference
    labels: Any
    average: bool  # the averaged rule answers
    members: Sequence[str]  # auto: those that vote
    refit: str  # softmax: doubling or none
    drift: dict[str, Any]  # {"sensitivity": 0.002, "on_drift": "alarm", or "restart" as auto does}
    a: float
    budget: float | dict[str, Any]  # α, or {"estimate": {"initial": 4.0}}
    keep_points: int
    ttl_seconds: int | None
    id: str | None
    name: str | None


class Changes(TypedDict, total=False):
    """What of a session can be changed; what is left out stays."""

    name: str | None
    ttl_seconds: int | None
    keep_points: int
    budget: dict[str, Any]  # {"estimate": {"initial": 4.0}}: begin the estimate anew
    refit: str  # of a softmax: doubling or none
    algorithm: str  # auto: this member goes on alone
    add_labels: Sequence[Label]


class Placing(TypedDict, total=False):
    """In which coordinates points are given, and what becomes of those beyond the radius limit."""

    coordinates: str  # poincare (default), hyperboloid, klein, halfspace, euclidean
    outside: str  # refuse (default), clip


class How(Placing, total=False):
    """How points are observed."""

    truth: Any  # where the points were before they moved, for display
    if_match: int | Model | None  # the model, or its version, that they respond to
    columns: bool  # whether the answer has predictions and scores; default yes
    probabilities: bool  # and probabilities, of a softmax or gaussian; default no
    batch: int | None  # the most points of a request
    key: str | None  # the caller's own idempotency key


class Recipe(TypedDict, total=False):
    """How to fit; what is left out is the service's default."""

    kind: str  # svm, softmax
    margin: str  # soft, hard
    loss: str  # hinge, squared_hinge
    C: float
    features: str  # hemisphere, hyperboloid, tangent, lift
    reference: Any  # session, hull, closest, lorentz, cv, a point, or one a class
    probabilities: bool
    data: str  # files that the service reads itself, for administrators


#: What the service takes for a setting that is left out.
DEFAULTS: dict[str, Any] = {
    **{"curvature": 1.0, "labels": [-1, 1], "a": 1.0, "budget": 1.0},
    **{"keep_points": 10_000, "ttl_seconds": None, "name": None},
}


def session_path(id: str) -> str:
    return f"/sessions/{quote(id, safe='')}"


def open_session(
    channel: Channel, asked: Mapping[str, Any], fork: Mapping[str, Any] | None = None
) -> Call[SessionCalls]:
    """Open one; import one if there is a `snapshot`, add some up if there is a `merge`; `fork`: {"session": id, "at":
    position}, to begin from another"""
    settings = {name: plain(value) for name, value in asked.items() if value is not None}
    chosen_here = not settings.get("id")  # at random, so that nobody else has it
    id = settings["id"] = settings.get("id") or channel.key()
    body = settings if fork is None else {"fork": {**fork, **settings}}
    request = channel.request("POST", "/sessions", headers={"Content-Type": JSON}, content=dump(body))
    try:
        info = yield from channel.ask(request, _info, channel.marks(id))
    except SessionExists as error:
        if not error.doubtful:
            raise
        info = yield from look(channel, id)
        if not (chosen_here or is_what_was_asked(info, settings, fork)):
            raise
    return SessionCalls(channel, info)


def restore_file(channel: Channel, path: Path, id: str | None, name: str | None) -> Call[SessionCalls]:
    """Import the file that `AsyncSession.save` wrote; or a JSON document of `AsyncSession.snapshot`, in a file"""
    head = _first_line(path)
    if head.get("version") != 3:
        return (yield from open_session(channel, {"snapshot": _document(path), "id": id, "name": name}))
    params = {"id": id or channel.key(), **({} if name is None else {"name": name})}
    request = channel.request("POST", "/sessions", params, {"Content-Type": NDJSON}, path)
    try:
        info = yield from channel.ask(request, _info, channel.marks(params["id"]))
    except SessionExists as error:
        if not error.doubtful:
            raise
        info = yield from look(channel, params["id"])
        if id is not None and not is_what_was_asked(info, {"snapshot": head, "name": name or info.name}):
            raise
    return SessionCalls(channel, info)


def _first_line(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            head = orjson.loads(file.readline())
    except OSError as error:
        raise WrongArgument(f"{path} cannot be read: {error.strerror}") from error
    except orjson.JSONDecodeError:  # JSON over several lines
        head = {}
    return head if isinstance(head, dict) else {}


def _document(path: Path) -> dict[str, Any]:
    try:
        found = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or found.get("format") != "horocycle-snapshot":
        raise WrongArgument(f"{path} is no snapshot: session.save(path) writes one")
    return found


def is_what_was_asked(info: SessionInfo, asked: Mapping[str, Any], fork: Mapping[str, Any] | None = None) -> bool:
    """Whether this session can be the one that was asked for, and has learned nothing since"""
    if fork is not None:
        return (info.pending or info.observed == fork.get("at", info.observed)) and _agree(info, asked)
    snapshot = asked.get("snapshot")
    if snapshot is not None:
        counters, settings = snapshot["counters"], {**snapshot["session"], "name": asked.get("name", info.name)}
        settings.pop("reference")  # a promotion may have moved it
        return info.observed == counters["observed"] and info.version == counters["version"] and _agree(info, settings)
    if "merge" in asked:
        return info.algorithm == "gaussian" and info.name == asked.get("name")
    lifted = "reference" in asked or asked.get("features") == "lift"
    algorithm = "perceptron" if lifted else "auto"
    return info.observed == 0 and _agree(info, {"algorithm": algorithm, **DEFAULTS, **asked})


def _agree(info: SessionInfo, asked: Mapping[str, Any]) -> bool:
    """Whether the settings are those that were asked for, as far as they are shown. One that the session's algorithm
    does not use is shown as None, a learned reference as the point that was found."""
    for name, value in asked.items():
        wanted = plain(value)
        shown = getattr(info, name, wanted)
        if name == "reference" and wanted == "origin":
            wanted = [0.0] * info.dimension
        if isinstance(shown, tuple):
            shown = list(shown)
        unused = shown is None and name in ("a", "budget", "reference")
        learned = name == "reference" and isinstance(wanted, dict) and info.status == "live"
        if not (unused or learned or _within(wanted, shown)):
            return False
    return True


def _within(wanted: Any, shown: Any) -> bool:
    """Equal, except for members that the service filled in"""
    if isinstance(wanted, dict) and isinstance(shown, dict):
        return all(name in shown and _within(value, shown[name]) for name, value in wanted.items())
    return bool(wanted == shown)


def find_session(channel: Channel, id: str) -> Call[SessionCalls]:
    marks = channel.marks(id)
    info = yield from channel.ask(channel.request("GET", session_path(id)), _info, marks)
    return SessionCalls(channel, info)


def look(channel: Channel, id: str) -> Call[SessionInfo]:
    return channel.ask(channel.request("GET", session_path(id)), _info, channel.marks(id))


def page(channel: Channel, cursor: str | None, limit: int) -> Call[Page]:
    params = {"limit": limit} if cursor is None else {"limit": limit, "cursor": cursor}
    return channel.ask(channel.request("GET", "/sessions", params), lambda answer: Page.read(answer.json()))


def _info(answer: Answer) -> SessionInfo:
    return SessionInfo.read(answer.json())


class SessionCalls:
    """The calls about one session."""

    def __init__(self, channel: Channel, info: SessionInfo) -> None:
        self.channel, self.info = channel, info
        self.marks = channel.marks(info.id)
        self._model: Model | None = None

    @property
    def index(self) -> dict[Label, int]:
        """The place of each label"""
        return {label: i for i, label in enumerate(self.info.labels)}

    def _request(self, method: str, path: str = "", **more: Any) -> Send:
        return self.channel.request(method, session_path(self.info.id) + path, **more)

    def _keyed(
        self, path: str, content: bytes, kind: str, key: str | None, *, method: str = "POST", **more: Any
    ) -> Send:
        headers = {"Content-Type": kind, "Idempotency-Key": key or self.channel.key(), **more.pop("headers", {})}
        return self._request(method, path, headers=headers, content=content, **more)

    # ------------------------------------------------------------------------------ the session

    def refresh(self) -> Call[SessionInfo]:
        self.info = yield from look(self.channel, self.info.id)
        return self.info

    def change(self, changes: Mapping[str, Any]) -> Call[SessionInfo]:
        request = self._keyed("", dump(changes), JSON, None, method="PATCH")
        self.info = yield from self.channel.ask(request, _info, self.marks)
        return self.info

    def end(self) -> Call[None]:
        try:
            yield from self.channel.ask(self._request("DELETE"), lambda answer: None, self.marks)
        except SessionGone as error:
            if not error.doubtful:
                raise

    def model(self) -> Call[Model]:
        known = self._model
        headers = {} if known is None else {"If-None-Match": f'"{known.version}"'}

        def read(answer: Answer) -> Model:
            return known if known is not None and answer.status == 304 else Model.read(answer.json())

        self._model = yield from self.channel.ask(self._request("GET", "/model", headers=headers), read, self.marks)
        return self._model

    def model_at(self, position: int) -> Call[Model]:
        """Its version is one of the past, so it is not held against the newest that is known"""
        request = self._request("GET", f"/at/{position}/model")
        return self.channel.ask(request, lambda answer: Model.read(answer.json()))

    def log_page(self, start: int, limit: int) -> Call[LogPage]:
        request = self._request("GET", "/log", params={"from": start, "limit": limit, "format": "npy"})
        page = yield from self.channel.ask(
            request, lambda answer: LogPage.read(answer.content, answer.headers), self.marks
        )
        if page.labels.max(initial=-1) >= len(self.info.labels):  # labels were added since the last look
            yield from self.refresh()
        return replace(page, labels=label_array(self.info.labels)[page.labels])

    def wait(self, timeout: float | None, report: Report) -> Call[SessionInfo]:
        """Until a fork has replayed its log"""
        info = yield from poll(self.channel, f"session {self.info.id!r}", self.refresh, timeout, report)
        if info.status == "failed":
            raise problem(info.failure or {"detail": f"session {info.id!r} failed"})
        return info

    def metrics(self) -> Call[Metrics]:
        request = self._request("GET", "/metrics")
        return self.channel.ask(request, lambda answer: Metrics.read(answer.json()), self.marks)

    def certificate(self, margin: float | str | None, loss: str | None = None) -> Call[Certificate]:
        params = {} if margin is None else {"margin": margin if isinstance(margin, str) else repr(float(margin))}
        params |= {} if loss is None else {"loss": loss}
        request = self._request("GET", "/certificate", params=params)
        return self.channel.ask(request, lambda answer: Certificate.read(answer.json()), self.marks)

    def snapshot_in_pieces(self, points: bool) -> Send:
        return self._request("GET", "/snapshot", params={"points": str(points).lower(), "format": "ndjson"})

    def snapshot(self, points: bool) -> Call[dict[str, Any]]:
        request = self._request("GET", "/snapshot", params={"points": str(points).lower()})
        return self.channel.ask(request, Answer.json, self.marks)

    def disk_svg(self) -> Call[str]:
        return self.channel.ask(
            self._request("GET", "/disk.svg"), lambda answer: answer.content.decode("utf-8"), self.marks
        )

    def subscribe(self, after: str | None) -> Subscription:
        return Subscription(self.channel, self.marks, f"{session_path(self.info.id)}/events", after)

    # ------------------------------------------------------------------------------- the stream

    def observe(
        self,
        batch: Batch,
        key: str | None,
        if_match: int | None,
        columns: bool,
        placing: Placing,
        probabilities: bool = False,
    ) -> Call[Observed]:
        content, kind = encode(batch, width(placing, self.info.dimension), self.index)
        headers = {**_accept(kind), **({} if if_match is None else {"If-Match": f'"{if_match}"'})}
        params = {**_reply(columns, probabilities), **_reading(kind, placing)}
        request = self._keyed("/observe", content, kind, key, headers=headers, params=params)
        done = yield from self._with_columns(request, lambda told, answer: Observed.read(told, answer.replayed))
        self._learned(done)
        return done

    def _with_columns(self, request: Send, read: Callable[[Document, Answer], C]) -> Call[C]:
        """An answer with its columns as JSON, or as binary rows, where predictions are indices of labels"""
        unnamed = False

        def parse(answer: Answer) -> C:
            nonlocal unnamed
            if (summary := answer.headers.get("horocycle-summary")) is None:
                return read(answer.json(), answer)
            told = binary_document(answer.content, summary)
            unnamed = told["predictions"].max(initial=-1) >= len(self.info.labels)
            if not unnamed:
                told["predictions"] = label_array(self.info.labels)[told["predictions"]]
            return read(told, answer)

        done = yield from self.channel.ask(request, parse, self.marks)
        if unnamed:  # labels were added since the last look
            yield from self.refresh()
            done = replace(done, predictions=label_array(self.info.labels)[done.predictions])
        return done

    def _learned(self, done: Observed) -> None:
        """Keep the counts of `info` current; another handle's answer may be newer"""
        if done.session.observed >= self.info.observed and not done.replayed:
            self.info = replace(self.info, **asdict(done.session))

    def label(self, ids: Any, labels: Any, key: str | None, columns: bool) -> Call[Labelled]:
        content = dump({"ids": plain(ids), "labels": plain(labels)})
        request = self._keyed("/labels", content, JSON, key, params=_reply(columns))
        done = yield from self.channel.ask(
            request, lambda answer: Labelled.read(answer.json(), answer.replayed), self.marks
        )
        self._learned(done)
        return done

    def predict(self, batch: Batch, model: str | None, placing: Placing | None = None) -> Call[Predicted]:
        content, kind = encode(batch, width(placing or {}, self.info.dimension), self.index)
        params = {**({} if model is None else {"model": model}), **(placing or {})}
        headers = {"Content-Type": kind, **_accept(kind)}
        request = self._request("POST", "/predict", params=params, headers=headers, content=content)

        def read(told: Document, answer: Answer) -> Predicted:
            return Predicted.read(told, answer.version if model in (None, "online") else None)

        return self._with_columns(request, read)

    # --------------------------------------------------------------------------------- the fits

    def fit(self, recipe: Mapping[str, Any], X: Any, y: Any, key: str | None) -> Call[FitInfo]:
        """On the retained points, or (X, y) on a body of its own"""
        given = {name: plain(value) for name, value in recipe.items() if value is not None}
        if X is None:
            request = self._keyed("/fits", dump(given), JSON, key)
        else:
            params = {name: _parameter(value) for name, value in given.items()}
            request = self._keyed("/fits", encode_raw(X, y, self.index), RAW, key, params=params)
        return self.channel.ask(request, _fit, self.marks)

    def fits(self) -> Call[list[FitInfo]]:
        def read(answer: Answer) -> list[FitInfo]:
            return [FitInfo.read(each) for each in answer.json()["fits"]]

        return self.channel.ask(self._request("GET", "/fits"), read, self.marks)

    def look_at_fit(self, fit: str) -> Call[FitInfo]:
        return self.channel.ask(self._request("GET", f"/fits/{quote(fit, safe='')}"), _fit, self.marks)

    def wait_for_fit(self, fit: str, timeout: float | None, report: Report) -> Call[FitInfo]:
        return poll(self.channel, f"fit {fit!r}", lambda: self.look_at_fit(fit), timeout, report)

    def cancel_fit(self, fit: str) -> Call[None]:
        request = self._request("DELETE", f"/fits/{quote(fit, safe='')}")
        try:
            yield from self.channel.ask(request, lambda answer: None, self.marks)
        except UnknownFit as error:
            if not error.doubtful:
                raise

    def promote(self, fit: str, member: str | None = None) -> Call[SessionInfo]:
        body = {"fit": fit} if member is None else {"fit": fit, "member": member}
        request = self._keyed("/promote", dump(body), JSON, None)
        self.info = yield from self.channel.ask(request, _info, self.marks)
        return self.info


class Job(Protocol):
    """What the service does in the background: a fit, or the replay of a fork."""

    @property
    def status(self) -> str: ...

    @property
    def progress(self) -> float | None: ...

    @property
    def pending(self) -> bool: ...


J = TypeVar("J", bound=Job)


def poll(channel: Channel, what: str, look: Callable[[], Call[J]], timeout: float | None, report: Report) -> Call[J]:
    """Look at a job, with growing pauses, until it is no longer pending"""
    began, pause = channel.clock(), POLL
    while True:
        job = yield from look()
        done = (0.0 if job.pending else 1.0) if job.progress is None else job.progress
        report(done, job.status)
        if not job.pending:
            return job
        if timeout is not None and channel.clock() - began + pause > timeout:
            raise NotYet(f"{what} is {job.status} after {timeout} s, {done:.0%} done")
        yield Sleep(pause)
        pause = min(1.5 * pause, POLL_MOST)


def _fit(answer: Answer) -> FitInfo:
    return FitInfo.read(answer.json())


def _parameter(value: Any) -> Any:
    """As a query parameter: a point as 0.1,-0.2, points as a list of these, numbers and booleans as JSON"""
    if isinstance(value, list):
        points = value if value and isinstance(value[0], list) else [value]
        return [",".join(map(repr, plain(point))) for point in points]
    return value if isinstance(value, str) else dump(value).decode()


def _reading(kind: str, placing: Placing) -> dict[str, Any]:
    """How the body of an observe is to be read: raw rows hold indices, and say so"""
    return {**placing, **({"label": "index"} if kind == RAW else {})}


def width(placing: Placing, dimension: int) -> int:
    """How many numbers a point has in these coordinates"""
    return dimension + (placing.get("coordinates") == "hyperboloid")


def chosen(placing: Mapping[str, Any]) -> Placing:
    """What of it was given"""
    found: Any = {name: placing[name] for name in Placing.__annotations__ if placing.get(name) is not None}
    return cast(Placing, found)


def _accept(kind: str) -> dict[str, str]:
    """Who sends raw rows gets columns back as such"""
    return {"Accept": f"{RAW}, {JSON}"} if kind == RAW else {}


def _reply(columns: bool, probabilities: bool = False) -> dict[str, str]:
    asked = {} if columns else {"reply": "summary"}
    return {**asked, "probabilities": "true"} if probabilities else asked


class Observing:
    """One `observe` in many requests.

    With If-Match it is over when a batch has changed the version: the points behind it respond to an older model.
    """

    def __init__(self, calls: SessionCalls, how: How) -> None:
        match = how.get("if_match")
        self._calls, self._key, self._columns = calls, how.get("key"), how.get("columns", True)
        self._probabilities = how.get("probabilities", False)
        self._if_match = match.version if isinstance(match, Model) else match
        self._placing = chosen(how)
        self.rows = rows(calls.info.dimension, how.get("batch"))
        self._batches, self._points, self._accepted = 0, 0, 0
        self.over = False

    def batch(self, batch: Batch) -> Call[Observed | None]:
        """The answer to one batch; None if others changed the model between two batches (412)"""
        key = self._key if self._key is None or not self._batches else f"{self._key}.{self._batches}"
        try:
            done = yield from self._calls.observe(
                batch, key, self._if_match, self._columns, self._placing, self._probabilities
            )
        except HorocycleError as error:
            if isinstance(error, StaleModel) and self._batches:
                self.over = True
                return None
            if isinstance(error, InvalidInput) and error.index is not None and error.index >= 0:
                error.index += self._points
            error.accepted = self._accepted
            if isinstance(error, WentBackwards):
                error.accepted += error.answer.accepted
            raise
        self._batches += 1
        self._points += len(batch)
        self._accepted += done.accepted
        self.over = self._if_match is not None and (
            done.accepted < len(batch) or done.session.version != self._if_match
        )
        return done


def probabilities(predicted: Predicted, model: str | None) -> Array:
    if predicted.probabilities is None:
        raise NoProbabilities(f"the model {model or 'online'} has no probabilities; a fit has, unless told otherwise")
    return predicted.probabilities
