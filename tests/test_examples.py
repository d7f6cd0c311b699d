"""Every route of the API, driven by the example that the OpenAPI document gives for it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from service.api.examples import EXAMPLES
from tests.running import service
from tests.sse import parsed, spoken

#: The routes of the wire contract, but for fits and the live page.
ROUTES = """
post /sessions
get /sessions
get /sessions/{id}
patch /sessions/{id}
delete /sessions/{id}
post /sessions/{id}/observe
get /sessions/{id}/predict
post /sessions/{id}/predict
get /predict
post /sessions/{id}/labels
get /sessions/{id}/model
get /sessions/{id}/metrics
get /sessions/{id}/certificate
get /sessions/{id}/events
get /sessions/{id}/snapshot
get /sessions/{id}/disk.svg
get /problems/{slug}
get /health/live
get /health/ready
get /metrics
""".strip().splitlines()


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service of two workers that nobody has spoken to"""
    with (
        service(tmp_path_factory.mktemp("fresh") / "data", workers=2) as found,
        httpx.Client(base_url=found.url, timeout=30) as http,
    ):
        yield http


@pytest.fixture(scope="module")
def document(fresh: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = fresh.get("/openapi.json").json()
    return found


def test_all_that_the_document_refers_to_is_in_it(document: dict[str, Any]) -> None:
    """FitRequest, which no parameter is of, was not"""
    names = set(re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', json.dumps(document)))
    assert {"FitRequest", "Problem"} <= names <= set(document["components"]["schemas"])


def operation(document: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    found: dict[str, Any] = document["paths"][path][method]
    return found


def request(operation: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    """The arguments of httpx.request, out of what the document shows"""
    places: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "header": {}}
    for parameter in operation.get("parameters", []):
        if "example" in parameter:
            places[parameter["in"]][parameter["name"]] = parameter["example"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
    url = path.format(**places["path"])
    return {"method": method, "url": url, "params": places["query"], "headers": places["header"], "json": body}


def success(operation: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """The one good status that is documented, and its content by type"""
    [status] = [status for status in operation["responses"] if status.startswith("2")]
    content: dict[str, Any] = operation["responses"][status].get("content", {})
    return int(status), content


def fits(value: Any, schema: dict[str, Any], document: dict[str, Any]) -> bool:
    """Whether a value is what a schema says; of JSON Schema as much as the document uses"""
    if "$ref" in schema:
        return fits(value, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], document)
    if "anyOf" in schema:
        return any(fits(value, each, document) for each in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return value in schema.get("enum", [schema.get("const")])
    kind, number = schema.get("type"), isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "object" and isinstance(value, dict):
        members, rest = schema.get("properties", {}), schema.get("additionalProperties", "properties" not in schema)
        return set(schema.get("required", [])) <= set(value) and all(
            fits(each, members[name], document)
            if name in members
            else rest is True or (isinstance(rest, dict) and fits(each, rest, document))
            for name, each in value.items()
        )
    if kind == "array" and isinstance(value, list):
        return all(fits(each, schema.get("items", {}), document) for each in value)
    return {
        None: True,
        "string": isinstance(value, str),
        "integer": number and isinstance(value, int),
        "number": number,
        "boolean": isinstance(value, bool),
        "null": value is None,
    }.get(kind, False)


def wait_for(http: httpx.Client, job: str, seconds: float = 60.0) -> None:
    """A job is done before the next example speaks of it"""
    deadline = time.monotonic() + seconds
    while (status := http.get(job).json()["status"]) != "done":
        assert status in ("queued", "running") and time.monotonic() < deadline, status
        time.sleep(0.02)


def test_the_check_of_schemas_can_fail() -> None:
    document = {"components": {"schemas": {"N": {"type": "integer"}}}}
    schema = {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"$ref": "#/components/schemas/N"}, "b": {"anyOf": [{"type": "null"}, {"enum": ["x"]}]}},
    }
    for good in ({"a": 1}, {"a": 1, "b": None}, {"a": 1, "b": "x"}):
        assert fits(good, schema, document)
    wrong: list[Any] = [{}, {"a": 1.5}, {"a": True}, {"a": 1, "b": "y"}, {"a": 1, "c": 1}, [], None]
    for bad in wrong:
        assert not fits(bad, schema, document)
    assert fits([[0.5], []], {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}, document)
    assert not fits([0.5, "1"], {"type": "array", "items": {"type": "number"}}, document)


def test_every_route_of_the_contract_is_there_and_has_an_example(document: dict[str, Any]) -> None:
    served = {f"{method} {path}" for path, methods in document["paths"].items() for method in methods}
    assert set(ROUTES) <= served
    assert {f"{method} {path}" for method, path in EXAMPLES} == served


def test_every_operation_answers_its_example_as_documented(fresh: httpx.Client, document: dict[str, Any]) -> None:
    """In the order of the examples: the session is opened first and ended last"""
    for method, path in EXAMPLES:
        shown = operation(document, method, path)
        status, content = success(shown)
        asked = request(shown, method, path)
        assert "{" not in asked["url"], f"{method} {path} has a parameter without an example"
        assert (asked["json"] is not None) == ("requestBody" in shown)
        if "text/event-stream" in content:
            with fresh.stream(**asked) as answer:
                first = spoken(parsed(answer.iter_lines()), 1)[0]
                assert (answer.status_code, first.name) == (status, "session")
                continue
        answer = fresh.request(**asked)
        assert answer.status_code == status, f"{method} {path}: {answer.text}"
        kind = answer.headers.get("content-type", "").partition(";")[0]
        assert kind in content or (status == 204 and not answer.content), f"{method} {path} answers {kind}"
        if status == 202:
            wait_for(fresh, answer.headers["location"])
        if kind == "application/json" and status != 204:
            assert fits(answer.json(), content[kind].get("schema", {}), document), f"{method} {path}: {answer.text}"
        if "{id}" in path and kind != "text/html":
            assert answer.headers["horocycle-epoch"]


def test_every_operation_lists_its_problems(document: dict[str, Any]) -> None:
    for method, path in EXAMPLES:
        responses = operation(document, method, path)["responses"]
        problems = {
            status for status, each in responses.items() if "application/problem+json" in each.get("content", {})
        }
        if path.endswith("/live"):  # the same page for every id
            assert problems <= {"421"}
        elif "{id}" in path or path == "/predict":
            assert {"404", "410", "422", "500", "503", "504"} <= problems, f"{method} {path}"
        if method in ("post", "patch"):
            assert {"400", "413", "415", "422"} <= problems, f"{method} {path}"
        for status in problems:
            slugs = re.findall(r"`([a-z-]+)`: \w", responses[status]["description"])
            assert slugs, f"{method} {path} {status}"


def test_every_problem_that_is_listed_has_a_page(fresh: httpx.Client, document: dict[str, Any]) -> None:
    shown = [
        each for methods in document["paths"].values() for one in methods.values() for each in one["responses"].values()
    ]
    slugs = {slug for each in shown for slug in re.findall(r"`([a-z-]+)`: ", each["description"])}
    assert len(slugs) > 20
    for slug in slugs:
        page = fresh.get(f"/problems/{slug}")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "What to do" in page.text
    assert fresh.get("/problems/none").status_code == 404


def test_the_documentation_needs_no_internet(fresh: httpx.Client) -> None:
    page = fresh.get("/docs")
    assert page.status_code == 200
    assert not re.findall(r"https?://|[\"']//", page.text)
    named = re.findall(r"(?:href|src)=\"(.+?)\"|url: '(.+?)'", page.text)
    addresses = ["".join(each) for each in named]
    assert len(addresses) == 4 and "/openapi.json" in addresses
    for address in addresses:
        found = fresh.get(address)
        assert found.status_code == 200 and len(found.content) > 500, address
    assert not re.findall(r"url\(['\"]?(?:https?:)?//", fresh.get("/docs/swagger-ui.css").text)
    assert fresh.get("/docs/..%2F..%2Fpages.py").status_code == 404
