"""OpenTelemetry: a span a request, with its commit inside; the caller's trace goes on; metrics; off, nothing of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from functools import partial
from typing import Any

import httpx
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from service.app import create_app
from service.process.tracing import traced
from service.settings import Settings
from tests.running import Running, command

TRACE, PARENT = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7


def test_a_request_and_its_commit_are_in_the_callers_trace(running: Running) -> None:
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    settings = Settings(redis_url=running.redis_url)
    app, asgi = traced(partial(create_app, settings), SimpleSpanProcessor(spans), reader)

    async def run() -> None:
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(asgi), base_url="http://127.0.0.1") as http,
        ):
            assert (await http.post("/sessions", json={"id": "traced", "dimension": 2})).status_code == 201
            spans.clear()
            parent = {"traceparent": f"00-{TRACE:032x}-{PARENT:016x}-01"}
            point = {"point": [0.123454321, 0.2], "label": 1}
            await http.post("/sessions/traced/observe", json=point, headers=parent)
            await asyncio.gather(*(http.post("/sessions/traced/observe", json=point) for _ in range(8)))
            await http.get("/sessions/none/model")

    asyncio.run(run())
    found = spans.get_finished_spans()
    first = [span for span in found if span.context is not None and span.context.trace_id == TRACE]
    assert [span.name for span in first] == ["commit", "POST /sessions/{id}/observe"]  # in the order they ended
    commit, request = first
    assert request.parent is not None and request.parent.span_id == PARENT
    assert commit.parent is not None and request.context is not None
    assert commit.parent.span_id == request.context.span_id
    assert request.attributes == {
        "http.request.method": "POST",
        "http.route": "/sessions/{id}/observe",
        "http.response.status_code": 200,
    }
    rest = [span for span in found if span not in first]
    commits = [span for span in rest if span.name == "commit"]
    assert sum(span.attributes["horocycle.requests"] for span in commits if span.attributes) == 8  # type: ignore[misc]
    assert sum(1 + len(span.links) for span in commits) == 8
    assert "GET /sessions/{id}/model" in [span.name for span in rest]
    assert "123454321" not in "".join(span.to_json() for span in found)
    assert points(reader) >= 9


def points(reader: InMemoryMetricReader) -> float:
    data: Any = reader.get_metrics_data()
    metrics = {each.name: each for resource in data.resource_metrics for scope in resource.scope_metrics
               for each in scope.metrics}  # fmt: skip
    assert {
        "horocycle_commit_seconds_count",
        "horocycle_commit_seconds_sum",
        "horocycle_queue_length",
    } <= metrics.keys()
    return float(metrics["horocycle_points"].data.data_points[0].value)


def test_nothing_of_it_is_loaded_while_it_is_off() -> None:
    code = "import sys, service.process.worker; print([name for name in sys.modules if 'opentelemetry' in name])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_without_its_packages_it_is_said(tmp_path: Any) -> None:
    (tmp_path / "opentelemetry").mkdir()
    (tmp_path / "opentelemetry" / "__init__.py").write_text("")  # found before the real one, and empty
    told = command("serve", "--data", str(tmp_path / "data"), HOROCYCLE_OTEL="1", PYTHONPATH=str(tmp_path))
    assert told.returncode == 1 and told.stderr.startswith("otel needs packages that are not installed")
