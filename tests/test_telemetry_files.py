"""The text that Prometheus reads, by its own parser; numbers of several workers, added up while some of them end."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from service import telemetry, telemetry_files
from service.telemetry import BOUNDS, TIMES, Counter, Gauge, Histogram, LocalGauge, Metric
from service.telemetry_files import LIMIT, RETIRED, Labels, Numbers, Published, retire, total, write

NOBODY = "0-own"  # the name of a reader that has no file
SERIES: Numbers = {"hits": {("a",): [1.0]}, "times": {(): [1.0, 0.0, 0.5]}}  # a counter, and a histogram of two buckets


def published(times: int = 1) -> Published:
    scaled = {
        name: {labels: [times * number for number in found] for labels, found in series.items()}
        for name, series in SERIES.items()
    }
    return Published(scaled, {"open": {(): [float(times)]}})


def counted(folder: Path) -> tuple[float, float]:
    """Counters and gauges; the histogram must agree with the counter"""
    found = total(folder, NOBODY, Published())
    hits = found.counters.get("hits", {}).get(("a",), [0.0])[0]
    assert found.counters.get("times", {}).get((), [0.0, 0.0, 0.0]) == [hits, 0.0, hits / 2]
    return hits, found.gauges.get("open", {}).get((), [0.0])[0]


# --------------------------------------------------------------------------------------------- the text


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No metrics but those of the test, in a process that is the only worker"""
    monkeypatch.setattr(telemetry, "METRICS", {})
    monkeypatch.delenv(telemetry.FOLDER, raising=False)
    yield


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    found = [(sample.name, frozenset(sample.labels.items()), sample.value) for f in families for sample in f.samples]
    assert len({(name, labels) for name, labels, _ in found}) == len(found)
    return {(name, labels): value for name, labels, value in found if not name.endswith("_created")}


values = st.lists(
    st.tuples(st.text(st.sampled_from('a"\\\n{}=, é'), max_size=4), st.floats(0, 10, allow_subnormal=False)), max_size=8
)


@given(values)
def test_the_text_says_what_prometheus_client_would_say(seen: list[tuple[str, float]]) -> None:
    registry = prometheus_client.CollectorRegistry()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(telemetry, "METRICS", {})
        patch.delenv(telemetry.FOLDER, raising=False)
        ours: list[Any] = [Metric(kind, kind.type, "Help", ["a", "b"]) for kind in (Counter, Histogram, Gauge)]
        options: dict[str, Any] = {"labelnames": ["a", "b"], "registry": registry}
        theirs: list[Any] = [
            prometheus_client.Counter("counter", "Help", **options),
            prometheus_client.Histogram("histogram", "Help", buckets=TIMES, **options),
            prometheus_client.Gauge("gauge", "Help", **options),
        ]
        for text, number in seen:
            for counter, histogram, gauge in (ours, theirs):
                counter.labels(text, "x").inc(number)
                histogram.labels(text, "x").observe(number)
                gauge.labels(text, "x").set(number)
        told = telemetry.exposition().decode()
    expected = prometheus_client.generate_latest(registry).decode()
    assert samples(told) == samples(expected)
    heads = [line for line in expected.splitlines() if line.startswith("#") and "_created" not in line]
    assert [line for line in told.splitlines() if line.startswith("#")] == heads


def test_metrics_without_labels_are_there_from_the_start(alone: None) -> None:
    Metric(Counter, "hits", "Help").labels()
    Metric(Histogram, "times", "Help").labels()
    Metric(LocalGauge, "up", "Help").labels().set(1)
    found = samples(telemetry.exposition().decode())
    assert found[("hits_total", frozenset())] == found[("times_count", frozenset())] == 0
    assert found[("up", frozenset())] == 1
    assert sum(name == "times_bucket" for name, _ in found) == len(BOUNDS)


def test_beyond_the_limit_a_series_is_other(alone: None) -> None:
    metric = Metric(Counter, "hits", "Help", ["route", "status"])
    for number in range(LIMIT + 50):
        metric.labels(f"/{number}", "200").inc()
    metric.labels("/0", "200").inc()
    found = samples(telemetry.exposition().decode())
    assert len(found) == LIMIT + 1
    assert found[("hits_total", frozenset({("route", "other"), ("status", "other")}))] == 50
    assert found[("hits_total", frozenset({("route", "/0"), ("status", "200")}))] == 2


def test_the_number_of_labels_is_checked(alone: None) -> None:
    with pytest.raises(ValueError, match="labels"):
        Metric(Counter, "hits", "Help", ["route"]).labels()


def test_the_documentation_lists_every_metric() -> None:
    text = (Path(__file__).parent.parent / "docs/metrics.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:3] == "| `"]
    assert rows == [
        [
            f"`{name}_total`" if metric.kind is Counter else f"`{name}`",
            metric.kind.type,
            " ".join(f"`{label}`" for label in metric.names),
            metric.help,
        ]
        for name, metric in telemetry.METRICS.items()
    ]
    assert f"{LIMIT:,} series" in text


# ------------------------------------------------------------------------------------------ many workers


def test_live_workers_are_added_up_and_ended_ones_keep_their_counters(tmp_path: Path) -> None:
    for pid in (11, 12, 13):
        write(tmp_path, f"{pid}-x", published(pid))
    assert counted(tmp_path) == (36, 36)
    retire(tmp_path, {11, 13})
    assert counted(tmp_path) == (36, 24)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["11-x", "13-x", RETIRED]
    retire(tmp_path, set())
    assert counted(tmp_path) == (36, 0)
    assert [path.name for path in tmp_path.iterdir()] == [RETIRED]  # however many have ended
    write(tmp_path, "12-y", published(1))  # another worker, that got the pid of one that ended
    assert counted(tmp_path) == (37, 1)


def test_our_own_numbers_are_those_in_memory(tmp_path: Path) -> None:
    write(tmp_path, "11-x", published(1))
    found = total(tmp_path, "11-x", published(5))
    assert (found.counters["hits"][("a",)], found.gauges["open"][()]) == ([5], [5])


GARBAGE = {
    "empty": b"",
    "cut short": b'{"counters": {"hits": [[["a"], [1',
    "zeros": bytes(4096),
    "not UTF-8": b'"\xff"',
    "another type": b"[1, 2]",
    "another shape": b'{"counters": {"hits": 3}, "gauges": {}}',
    "no numbers": b'{"counters": {"hits": [[["a"], ["1"]]]}, "gauges": {}}',
    "not finite": b'{"counters": {"hits": [[["a"], [NaN]]]}, "gauges": {}}',
    "beyond a float": b'{"counters": {"hits": [[["a"], [1' + b"0" * 400 + b']]]}, "gauges": {}}',
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_a_file_that_is_not_whole_is_ignored_and_removed_when_its_writer_has_ended(
    tmp_path: Path, garbage: bytes
) -> None:
    write(tmp_path, "11-x", published(1))
    for name in ("12-x", "13-x", "13-x.part", RETIRED):
        (tmp_path / name).write_bytes(garbage)
    assert counted(tmp_path) == (1, 1)
    retire(tmp_path, {11, 12})
    assert counted(tmp_path) == (1, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["11-x", "12-x", RETIRED]


def test_numbers_of_another_shape_are_left_out_of_the_text(
    tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of another version of the program, after an upgrade under a running supervisor"""
    monkeypatch.setenv(telemetry.FOLDER, str(tmp_path))
    Metric(Counter, "hits", "Help", ["route"]).labels("a").inc()
    Metric(Histogram, "times", "Help").labels()
    strange: dict[Labels, list[float]] = {("a",): [1.0, 2.0], ("b",): [], ("a", "b"): [1.0], ("\ud800",): [1.0]}
    write(tmp_path, "12-x", Published({"hits": strange, "times": {(): [1.0]}, "unknown": {(): [1.0]}}))
    found = samples(telemetry.exposition().decode())
    assert found[("hits_total", frozenset({("route", "a")}))] == 1
    assert {labels for name, labels in found if name == "hits_total"} == {
        frozenset({("route", "a")}),
        frozenset({("route", "?")}),
    }


def test_a_folder_that_is_gone_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "gone", "11-x", published(1))
    retire(tmp_path / "gone", set())
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert total(tmp_path / "gone", "11-x", published(2)).counters["hits"][("a",)] == [2]


@pytest.mark.parametrize("step", ["replace", "unlink"])
def test_nothing_is_lost_or_counted_twice_if_retiring_stops_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    for pid in (11, 12):
        write(tmp_path, f"{pid}-x", published(1))

    def fail(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(*{"replace": (os, "replace", fail), "unlink": (Path, "unlink", fail)}[step])
        retire(tmp_path, {12})
        assert counted(tmp_path)[0] == 2
        retire(tmp_path, {12})
        assert counted(tmp_path)[0] == 2
    retire(tmp_path, {12})
    assert counted(tmp_path) == (2, 1)
    assert not (tmp_path / "11-x").exists()


@pytest.mark.parametrize("moment", ["_files", "_read"])
def test_a_worker_that_is_retired_between_two_reads_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Before the folder is listed its file is in neither place that is read; after its file was read, in both"""
    for pid in (11, 12):
        write(tmp_path, f"{pid}-x", published(1))
    right = getattr(telemetry_files, moment)

    def wrong_moment(path: Path) -> object:
        monkeypatch.setattr(telemetry_files, moment, right)
        if moment == "_files":
            retire(tmp_path, {12})
        found = right(path)
        if moment == "_read":
            retire(tmp_path, {12})
        return found

    monkeypatch.setattr(telemetry_files, moment, wrong_moment)
    assert counted(tmp_path) == (2, 1)


def test_every_scrape_sees_one_sum_while_workers_end(tmp_path: Path) -> None:
    pids = range(1000, 1150)
    for pid in pids:
        write(tmp_path, f"{pid}-x", published(1))
    sums: list[float] = []
    done, before = threading.Event(), sys.getswitchinterval()

    def scrape() -> None:
        while not done.is_set():
            sums.append(counted(tmp_path)[0])

    scrapes = [threading.Thread(target=scrape) for _ in range(3)]
    sys.setswitchinterval(1e-5)
    try:
        for thread in scrapes:
            thread.start()
        for last in pids:
            retire(tmp_path, range(last + 1, pids.stop))
    finally:
        done.set()
        for thread in scrapes:
            thread.join()
        sys.setswitchinterval(before)
    assert len(sums) > 3 and set(sums) == {len(pids)}
    assert counted(tmp_path) == (len(pids), 0)


def test_an_older_snapshot_does_not_replace_a_newer_one(
    tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer and a scrape publish at the same time: what a scrape has shown stays in the file"""
    monkeypatch.setenv(telemetry.FOLDER, str(tmp_path))
    hits = Metric(Counter, "hits", "Help").labels()
    entered, right = threading.Event(), telemetry_files.write

    def slow(folder: Path, name: str, found: Published) -> None:
        if not entered.is_set():
            entered.set()
            threading.Event().wait(0.3)
        right(folder, name, found)

    monkeypatch.setattr(telemetry_files, "write", slow)
    timer = threading.Thread(target=telemetry.publish)
    timer.start()
    entered.wait()
    hits.inc()
    assert b"hits_total 1.0" in telemetry.exposition()
    timer.join()
    assert total(tmp_path, NOBODY, Published()).counters["hits"][()] == [1]
