"""The metrics of this process, and the text that Prometheus reads (text exposition format 0.0.4).

A metric is written by one thread, the event loop's, so that `inc` is one addition without a lock; any thread may read.
With several workers, telemetry_files adds up their numbers: `python -m service serve` names the folder by FOLDER.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from service import telemetry_files as files
from service.telemetry_files import Labels, Numbers, Published

FOLDER = "HOROCYCLEMETRICS_FOLDER"  # environment variable; unset: this process is the only worker
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TIMES = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
BOUNDS = (*map(str, TIMES), "+Inf")


class Counter:
    type = "counter"

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, amount: float = 1) -> None:
        self.value += amount

    def numbers(self) -> list[float]:
        return [self.value]


class Gauge(Counter):
    """Summed over the live workers"""

    type = "gauge"

    def dec(self, amount: float = 1) -> None:
        self.value -= amount

    def set(self, value: float) -> None:
        self.value = value


class LocalGauge(Gauge):
    """Not summed: the value in the worker that is scraped"""


class Histogram:
    """Counts of seconds in the buckets of TIMES, one for those above, and their sum"""

    type = "histogram"

    def __init__(self) -> None:
        self.buckets = [0] * len(BOUNDS)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.buckets[bisect_left(TIMES, seconds)] += 1
        self.sum += seconds

    def numbers(self) -> list[float]:
        return [*self.buckets, self.sum]


class Series(Protocol):
    type: str

    def numbers(self) -> list[float]: ...


S = TypeVar("S", bound=Series)
METRICS: dict[str, Metric[Any]] = {}


class Metric(Generic[S]):
    """A metric and its series, one for each combination of label values: files.LIMIT of them, and `other`"""

    def __init__(self, kind: type[S], name: str, help: str, labels: Sequence[str] = ()) -> None:
        self.kind, self.name, self.help, self.names = kind, name, help, tuple(labels)
        self._series: dict[Labels, S] = {}
        METRICS[name] = self

    def labels(self, *values: str) -> S:
        """The series of these label values; beyond the limit, the one whose values are all `other`"""
        if len(values) != len(self.names):
            raise ValueError(f"{self.name} has the labels {self.names}, not {len(values)}")
        if (found := self._series.get(values)) is None:
            found = self._series.setdefault(files.within_limit(self._series, values), self.kind())
        return found

    def numbers(self) -> dict[Labels, list[float]]:
        return {values: series.numbers() for values, series in list(self._series.items())}


requests = Metric(Counter, "horocycle_requests", "Requests answered", ["method", "route", "status"])
request_seconds = Metric(Histogram, "horocycle_request_seconds", "Time to answer a request", ["route"])
points = Metric(Counter, "horocycle_points", "Points learned from").labels()
mistakes = Metric(Counter, "horocycle_mistakes", "Points that were predicted wrongly before they were learned").labels()
clipped = Metric(Counter, "horocycle_points_clipped", "Points moved to the radius limit, by ?outside=clip").labels()
jumps = Metric(
    Counter, "horocycle_budget_jumps", "Points that would have had an estimated budget fall by more than half"
).labels()
commits = Metric(Counter, "horocycle_commits", "Commits to the store").labels()
commit_seconds = Metric(Histogram, "horocycle_commit_seconds", "Time to commit").labels()
conflicts = Metric(Counter, "horocycle_commit_conflicts", "Commits that found another worker's before them").labels()
queue = Metric(Gauge, "horocycle_queue_length", "Observes that wait for their commit").labels()
streams = Metric(Gauge, "horocycle_event_streams", "Open event streams").labels()
store_up = Metric(LocalGauge, "horocycle_store_up", "1 if the store answered just now").labels()


# ---------------------------------------------------------------------------------------- several workers

_NAME = files.new_name()
_publishing = threading.Lock()  # an older snapshot must not replace a newer one


def publish() -> Published:
    """What this process has counted; with several workers also written to its file"""
    with _publishing:
        now = Published(_numbers(Counter, Histogram), _numbers(Gauge))
        if folder := os.environ.get(FOLDER):
            files.write(Path(folder), _NAME, now)
        return now


def _numbers(*kinds: type) -> Numbers:
    return {name: metric.numbers() for name, metric in METRICS.items() if metric.kind in kinds}


# --------------------------------------------------------------------------------------------- the text


def exposition() -> bytes:
    """The text, over all workers

    Our own numbers are published before they are shown: if this worker is killed, no counter goes backwards.
    """
    own, folder = publish(), os.environ.get(FOLDER)
    total = files.total(Path(folder), _NAME, own) if folder else own
    numbers = {**total.counters, **total.gauges, **_numbers(LocalGauge)}
    return "".join(line for name in METRICS for line in _lines(name, numbers.get(name, {}))).encode(errors="replace")


def _lines(name: str, numbers: dict[Labels, list[float]]) -> Iterator[str]:
    metric = METRICS[name]
    shape = len(metric.names), len(metric.kind().numbers())
    shown = f"{name}_total" if metric.kind is Counter else name
    yield f"# HELP {shown} {metric.help}\n# TYPE {shown} {metric.kind.type}\n"
    for values, found in numbers.items():
        if (len(values), len(found)) != shape:  # written by another version of the program
            continue
        labels = tuple(zip(metric.names, values, strict=True))
        if metric.kind is Histogram:
            *buckets, total = found
            for bound, count in zip(BOUNDS, accumulate(buckets), strict=True):
                yield _line(f"{name}_bucket", (*labels, ("le", bound)), count)
            yield _line(f"{name}_sum", labels, total)
            yield _line(f"{name}_count", labels, sum(buckets))
        else:
            yield _line(shown, labels, found[0])


def _line(name: str, labels: Sequence[tuple[str, str]], value: float) -> str:
    shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
    return f"{name}{{{shown}}} {float(value)!r}\n" if labels else f"{name} {float(value)!r}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
