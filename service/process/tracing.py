"""OpenTelemetry, if the setting `otel` is on: a span a request and a span a commit, and the metrics of telemetry.py

A commit is made for several requests at once: its span is a child of the first and linked to the others. `traceparent`
(W3C) of a request is its parent. Where to send them, OTEL_EXPORTER_OTLP_ENDPOINT and its like say. Nothing here is
imported while the setting is off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import __version__, telemetry
from service.ingest import Arrived, Ingest
from service.sessions.requests import Request, Unread

RESOURCE = Resource.create({"service.name": "horocycle", "service.version": __version__})


class TracedIngest(Ingest):
    """Each commit in a span of its own"""

    tracer: trace.Tracer

    def observe(self, sid: str, request: Request | Unread, waiter: Any = None) -> Any:
        found = trace.get_current_span().get_span_context()
        if found.is_valid:
            self.__dict__.setdefault("spans", {})[id(request)] = found
        try:
            return super().observe(sid, request, waiter)
        finally:
            if all(each is not request for each, _ in self._lane(sid).waiting):  # refused, or under way already
                self.__dict__.setdefault("spans", {}).pop(id(request), None)

    async def _settle(self, sid: str, lane: Any, arrived: list[Arrived]) -> None:
        spans: dict[int, SpanContext] = self.__dict__.setdefault("spans", {})
        causes = [found for request, _ in arrived if (found := spans.pop(id(request), None)) is not None]
        within = trace.set_span_in_context(NonRecordingSpan(causes[0])) if causes else None
        told: dict[str, str | int] = {"horocycle.session": sid, "horocycle.requests": len(arrived)}
        links = [Link(each) for each in causes[1:]]
        with self.tracer.start_as_current_span("commit", within, SpanKind.INTERNAL, told, links):
            await super()._settle(sid, lane, arrived)


class Traced:
    """The app, with a span around each request"""

    def __init__(self, app: ASGIApp, tracer: trace.Tracer, end: Callable[[], None]) -> None:
        self._app, self._tracer, self._end = app, tracer, end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            try:
                return await self._app(scope, receive, send)
            finally:
                self._end()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method = scope.get("method", "WEBSOCKET")
        with self._tracer.start_as_current_span(method, propagate.extract(headers), SpanKind.SERVER) as span:

            async def noting(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(Status(StatusCode.ERROR))
                await send(message)

            try:
                await self._app(scope, receive, noting)
            finally:
                route = getattr(scope.get("route"), "path", None)
                span.set_attribute("http.request.method", method)
                if route is not None:  # never the path itself: it may name anything
                    span.set_attribute("http.route", route)
                    span.update_name(f"{method} {route}")


def traced(
    create: Callable[..., Any], processor: SpanProcessor | None = None, reader: MetricReader | None = None
) -> tuple[Any, Traced]:
    """The app that `create` makes with this ingest, and the same with its spans"""
    spans = TracerProvider(resource=RESOURCE)
    spans.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter()))
    reader = reader or PeriodicExportingMetricReader(OTLPMetricExporter())
    metrics = MeterProvider(metric_readers=[reader], resource=RESOURCE)
    _export(metrics)
    tracer = spans.get_tracer("horocycle", __version__)

    def end() -> None:
        spans.shutdown()
        metrics.shutdown()

    app = create(type("TracedIngest", (TracedIngest,), {"tracer": tracer}))
    return app, Traced(app, tracer, end)


def _export(provider: MeterProvider) -> None:
    """The metrics of this worker, read when they are collected; of a histogram its count and its sum"""
    meter = provider.get_meter("horocycle", __version__)
    for name, metric in telemetry.METRICS.items():
        if metric.kind is telemetry.Histogram:
            meter.create_observable_counter(f"{name}_count", [_read(metric, lambda n: sum(n[:-1]))], "1", metric.help)
            meter.create_observable_counter(f"{name}_sum", [_read(metric, lambda n: n[-1])], "s", metric.help)
        elif issubclass(metric.kind, telemetry.Gauge):
            meter.create_observable_gauge(name, [_read(metric, lambda n: n[0])], "1", metric.help)
        else:
            meter.create_observable_counter(name, [_read(metric, lambda n: n[0])], "1", metric.help)


def _read(
    metric: telemetry.Metric[Any], number: Callable[[list[float]], float]
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        for values, numbers in metric.numbers().items():
            yield Observation(number(numbers), dict(zip(metric.names, values, strict=True)))

    return observe
