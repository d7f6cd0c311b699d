"""Every error is a problem, once: the mapping is total, its slugs are those of the contract, all of it is JSON."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

import pytest

from service import errors
from service.api.problems import RETRY_LATER, STATUS, problem, respond
from service.api.remedies import REMEDIES
from service.errors import HorocycleError, LaunchError, slug

#: As the contract (FAULTS.md and API.md) spells them, and those that it leaves to us.
CONTRACT = {
    "store-unavailable": 503,
    "store-full": 503,
    "store-read-only": 503,
    "outcome-unknown": 504,
    "body-too-large": 413,
    "malformed-body": 400,
    "non-finite": 422,
    "not-a-number": 422,
    "point-outside-ball": 422,
    "dimension-mismatch": 422,
    "unknown-label": 422,
    "empty-batch": 422,
    "length-mismatch": 422,
    "unknown-session": 404,
    "session-gone": 410,
    "session-exists": 409,
    "unsupported-media-type": 415,
    "unknown-field": 422,
    "rate-limited": 429,
    "state-corrupt": 500,
    "key-reused": 422,
    "stale-model": 412,
    "binary-only": 422,
    "unauthenticated": 401,
    "session-quota": 429,
    "answer-too-large": 422,
    "unknown-host": 421,
    "cross-site": 403,
}
OURS = {
    **{"invalid-request": 422, "invalid-parameter": 422, "unknown-route": 404, "method-not-allowed": 405},
    **{"id-reused": 422, "invalid-snapshot": 422, "empty-class": 422, "too-many-points": 422, "not-separable": 422},
    **{"unknown-fit": 404, "fit-not-ready": 409, "fit-failed": 409, "session-replaying": 409, "log-trimmed": 410},
    **{"not-converged": 422, "scope-missing": 403, "internal-error": 500, "earlier-connection": 409},
}
#: What an argument of an error may be called with, by its annotation
SAMPLES: dict[str, Any] = {
    "int": 7,
    "int | None": None,
    "float": float("nan"),
    "float | None": 0.5,
    "str": 'é\0"\n',
    "object": {1: [2**70]},
}
SAMPLES |= {"str | int": "no", "float | None": 0.5, "list[tuple[int, float]] | None": [(0, 0.5), (1, 0.5)]}


def leaves(kind: type[HorocycleError]) -> Iterator[type[HorocycleError]]:
    below = kind.__subclasses__()
    for each in below:
        yield from leaves(each)
    if not below:
        yield kind


SERVED = sorted(set(leaves(HorocycleError)) - set(leaves(LaunchError)), key=slug)


def example(kind: type[HorocycleError]) -> HorocycleError:
    """One of this kind, with strange arguments"""
    if kind.__init__ is HorocycleError.__init__:
        return kind("é\0", member=float("inf"), other={1, 2}, absent=None)
    arguments = list(inspect.signature(kind).parameters.values())
    return kind(**{argument.name: SAMPLES[argument.annotation] for argument in arguments})


def test_every_error_is_a_problem() -> None:
    assert set(STATUS) == set(SERVED)
    assert not set(STATUS) & set(leaves(LaunchError))


def test_the_slugs_are_those_of_the_contract() -> None:
    assert {slug(kind): status for kind, status in STATUS.items()} == CONTRACT | OURS
    assert len({slug(kind) for kind in STATUS}) == len(STATUS)


@pytest.mark.parametrize("kind", SERVED, ids=slug)
def test_every_problem_is_json(kind: type[HorocycleError]) -> None:
    error = example(kind)
    answer = respond(error)
    shown = json.loads(bytes(answer.body))
    assert answer.media_type == "application/problem+json"
    assert answer.status_code == shown["status"] == STATUS[kind]
    assert shown["type"] == f"/problems/{slug(kind)}"
    assert shown["title"].lower().replace(" ", "-") == slug(kind)
    assert shown["detail"] == error.detail
    assert set(shown) == {"type", "title", "status", "detail"} | {k for k, v in error.members.items() if v is not None}
    assert ("retry-after" in answer.headers) == (kind in RETRY_LATER) == (STATUS[kind] in (429, 503))


def test_an_integer_that_json_readers_cannot_hold_is_text() -> None:
    assert json.loads(bytes(respond(errors.DimensionMismatch(2, 10**20)).body))["got"] == "100000000000000000000"


def test_members_name_the_fault() -> None:
    told = problem(errors.PointOutsideBall(3, 1.5, 0.99))
    assert told.pop("detail").startswith("point 3 has norm 1.5; the limit is 0.99. Either name another model")
    assert told == {
        "type": "/problems/point-outside-ball",
        "title": "Point outside ball",
        "status": 422,
        "index": 3,
        "norm": 1.5,
        "limit": 0.99,
    }


def test_a_stale_model_comes_with_the_new_tag() -> None:
    assert respond(errors.StaleModel(12)).headers["etag"] == '"12"'


def test_every_problem_has_a_remedy() -> None:
    assert {slug(kind) for kind in STATUS} <= set(REMEDIES)
