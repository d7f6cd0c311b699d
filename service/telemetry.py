"""What Prometheus is told. With several workers each writes its own files in one folder and a scrape adds them up.

prometheus-client decides how to count when it is imported: the launcher names the folder in the environment before it
starts more than one worker.
"""

from __future__ import annotations

import os
from pathlib import Path

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
TIMES = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

requests = Counter("horocycle_requests", "Requests answered", ["method", "route", "status"])
request_seconds = Histogram("horocycle_request_seconds", "Time to answer a request", ["route"], buckets=TIMES)
points = Counter("horocycle_points", "Points learned from")
mistakes = Counter("horocycle_mistakes", "Points that were predicted wrongly before they were learned")
commits = Counter("horocycle_commits", "Commits to the store")
commit_seconds = Histogram("horocycle_commit_seconds", "Time to commit", buckets=TIMES)
conflicts = Counter("horocycle_commit_conflicts", "Commits that found another worker's before them")
queue = Gauge("horocycle_queue_length", "Observes that wait for their commit", multiprocess_mode="livesum")
streams = Gauge("horocycle_event_streams", "Open event streams", multiprocess_mode="livesum")
store_up = Gauge("horocycle_store_up", "1 if the store answered just now", multiprocess_mode="livemostrecent")


def exposition() -> bytes:
    """The text format, over all workers"""
    folder = os.environ.get(FOLDER)
    if folder is None:
        return generate_latest(REGISTRY)
    _bury_the_dead(Path(folder))
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)


def _bury_the_dead(folder: Path) -> None:
    """A worker that was killed waits for nothing any more; what it counted stays counted."""
    for file in folder.glob("gauge_live*.db"):
        pid = file.stem.rpartition("_")[2]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            mark_process_dead(int(pid), str(folder))  # type: ignore[no-untyped-call]
