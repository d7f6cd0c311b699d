"""The numbers of several workers: one file each in a folder of the supervisor's; whoever is scraped adds them up.

    <pid>-<token>        a worker's counters and gauges, by the worker
    <pid>-<token>.part   the same while it is being written
    retired              the counters of all workers that have ended, by the supervisor

A file is written aside and renamed, so that a reader finds a whole version or none. A worker publishes once a second,
when it is scraped, and when it ends: a scrape sees its own worker as of now, the others as of at most a second ago. A
worker that is killed takes what it counted since with it, but nothing that a scrape has shown.

Only the supervisor retires files, once it has waited for their writer: there is one writer to each file, and no lock.
A reader is optimistic: `retired` has a version, read before and after the other files; if it changed, read again.
`retired` also names the files it includes: one that is still there, because the supervisor has not removed it yet or
died before it could, is not counted twice.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

log = logging.getLogger(__name__)
Labels = tuple[str, ...]
#: Metric → label values → its numbers: one of a counter or gauge; of a histogram the buckets and the sum.
Numbers = dict[str, dict[Labels, list[float]]]

LIMIT = 1000  # series of one metric
RETIRED, PART = "retired", ".part"
TRIES = 100  # a worker would have to end during each of them
#: What reading a file of ours may raise when it is missing, cut short, or not ours.
UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Published:
    counters: Numbers = field(default_factory=dict)  # and histograms: what an ended worker has counted stays
    gauges: Numbers = field(default_factory=dict)  # only of live workers


@dataclass(frozen=True)
class Retired:
    counters: Numbers = field(default_factory=dict)
    names: frozenset[str] = frozenset()  # of the files that it includes and that may still be there
    version: str = ""


def new_name() -> str:
    return f"{os.getpid()}-{uuid4().hex}"


def within_limit(series: Mapping[Labels, object], values: Labels) -> Labels:
    """These label values, or `other` for each of them if the metric has no room for another series"""
    return values if values in series or len(series) < LIMIT else ("other",) * len(values)


# --------------------------------------------------------------------------------------------- workers


def write(folder: Path, name: str, published: Published) -> None:
    """Publish; a folder that cannot be written to is logged, and does not fail the caller."""
    body = {"counters": _plain(published.counters), "gauges": _plain(published.gauges)}
    try:
        _replace(folder / name, body)
    except OSError as error:
        log.warning("metrics are not published: %s", error)


def total(folder: Path, name: str, own: Published) -> Published:
    """The sum over our own numbers, every other live worker's file, and what is retired"""
    for _ in range(TRIES):
        retired = _read_retired(folder)
        others = [_read(path) for path in _files(folder) if path.name not in {name, *retired.names}]
        if _read_retired(folder).version == retired.version:
            break
    found = Published()
    for part in (own, Published(retired.counters), *others):
        _add(found.counters, part.counters)
        _add(found.gauges, part.gauges)
    return found


# ------------------------------------------------------------------------------------------ supervisor


def retire(folder: Path, alive: Collection[int]) -> None:
    """Move the counters of workers that have ended into `retired`, and remove their files

    To be called by one process only, with the pids of all workers that it has not yet waited for.
    """
    try:
        ended = [path for path in folder.iterdir() if _pid(path) not in (None, *alive)]
        if ended:
            _retire(folder, ended)
    except OSError as error:  # all files are still there: tried again later
        log.warning("metrics of ended workers are not retired: %s", error)


def _retire(folder: Path, ended: list[Path]) -> None:
    before = _read_retired(folder)
    for path in ended:
        if path.name not in before.names and path.suffix != PART:
            _add(before.counters, _read(path).counters)
    names = [path.name for path in ended]
    _replace(folder / RETIRED, {"counters": _plain(before.counters), "names": names, "version": uuid4().hex})
    for path in ended:
        path.unlink(missing_ok=True)


# ----------------------------------------------------------------------------------------------- files


def _files(folder: Path) -> list[Path]:
    """The workers' files, complete ones"""
    try:
        return sorted(path for path in folder.iterdir() if _pid(path) is not None and path.suffix != PART)
    except OSError:
        return []


def _pid(path: Path) -> int | None:
    pid, dash, _ = path.name.partition("-")
    return int(pid) if dash and pid.isdecimal() else None


def _replace(path: Path, body: dict[str, Any]) -> None:
    part = path.with_name(path.name + PART)
    part.write_text(json.dumps(body))
    os.replace(part, path)


def _read(path: Path) -> Published:
    """Nothing, if the file is missing or not one that we wrote"""
    try:
        body = json.loads(path.read_bytes())
        return Published(_numbers(body["counters"]), _numbers(body["gauges"]))
    except UNREADABLE:
        return Published()


def _read_retired(folder: Path) -> Retired:
    try:
        body = json.loads((folder / RETIRED).read_bytes())
        return Retired(_numbers(body["counters"]), frozenset(map(str, body["names"])), str(body["version"]))
    except UNREADABLE:
        return Retired()


def _plain(numbers: Numbers) -> dict[str, list[tuple[Labels, list[float]]]]:
    """For JSON, whose keys are strings"""
    return {metric: list(series.items()) for metric, series in numbers.items()}


def _numbers(plain: dict[str, Any]) -> Numbers:
    return {
        metric: {tuple(map(str, values)): [*map(_number, found)] for values, found in series}
        for metric, series in plain.items()
    }


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return value


def _add(into: Numbers, part: Numbers) -> None:
    """Elementwise; numbers of another length, from another version of the program, are left out"""
    for metric, series in part.items():
        sums = into.setdefault(metric, {})
        for values, found in series.items():
            key = within_limit(sums, values)
            before = sums.get(key, [0] * len(found))
            if len(before) == len(found):
                sums[key] = [a + b for a, b in zip(before, found, strict=True)]
