"""What a worker does beside serving: it publishes its metrics, keeps freed memory and imports only what it needs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from service import telemetry
from service.process import worker
from service.telemetry_files import Published, total

# Page faults of 100 buffers of 1 MiB, allocated, written and freed; before and after.
FAULTS = """
import resource
from service.process.worker import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        bytearray(b"x" * (1 << 20))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def mapped():
    import ctypes  # a fresh threshold: glibc raises it by itself when a mapped buffer is freed
    ctypes.CDLL(None).mallopt(-3, 128 << 10)
    return faults()

print(mapped(), keep_freed_memory(), faults(), faults())
"""


def points(folder: Path) -> float:
    return total(folder, "0-own", Published()).counters.get("horocycle_points", {}).get((), [0.0])[0]


@asynccontextmanager
async def nothing(app: object) -> AsyncIterator[None]:
    yield


def test_metrics_are_published_by_a_timer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(telemetry.FOLDER, str(tmp_path))
    monkeypatch.setattr(worker, "PUBLISH", 0.01)

    async def run() -> None:
        async with worker._publishing(nothing)(None), asyncio.timeout(10):
            telemetry.points.inc(3)
            while points(tmp_path) != telemetry.points.value:
                await asyncio.sleep(0.01)

    asyncio.run(run())


def test_metrics_are_published_when_the_worker_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(telemetry.FOLDER, str(tmp_path))
    monkeypatch.setattr(worker, "PUBLISH", 1000)

    @asynccontextmanager
    async def busy(app: object) -> AsyncIterator[None]:
        yield
        telemetry.points.inc(5)  # the last request

    async def run() -> None:
        async with worker._publishing(busy)(None):
            await asyncio.sleep(0)

    asyncio.run(run())
    assert points(tmp_path) == telemetry.points.value >= 5


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_freed_memory_is_kept() -> None:
    """A buffer of 1 MiB has 256 pages: mapped anew each costs a fault; kept, none does"""
    told = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True).stdout.split()
    before, done, first, again = int(told[0]), told[1], int(told[2]), int(told[3])
    if done == "False":
        pytest.skip("no glibc here")
    assert before > 100 * 256
    assert again <= first <= 2 * 2 * 256 + 100  # the two buffers of one round, once
    assert again < 100


@pytest.mark.parametrize(
    ("module", "unneeded"),
    [
        (
            "service.app",
            "scipy.linalg scipy.spatial scipy.optimize cffi httpx rich clients onnx pyarrow service.fits.child",
        ),
        ("service.fits.worker", "service.learners numba llvmlite scipy fastapi starlette uvicorn httpx rich clients"),
        ("service.fits.child", "numba llvmlite scipy.linalg redis pydantic fastapi httpx rich clients"),
        (
            "service.process.cli",
            "service.app service.learners numba llvmlite scipy numpy fastapi httpx",
        ),
        ("service.process.worker", "service.app service.process.cli numpy fastapi opentelemetry.sdk.metrics"),
    ],
)
def test_no_process_imports_what_it_does_not_need(module: str, unneeded: str) -> None:
    """Each of them would cost time at every start and memory as long as the process runs"""
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) & set(unneeded.split()) == set()


def test_the_launcher_imports_no_metrics_of_others() -> None:
    """redis-py would import OpenTelemetry's, where they are installed"""
    words = [sys.executable, "-X", "importtime", "-m", "service", "serve", "--help"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    assert " redis.observability" in told and "opentelemetry.sdk.metrics." not in told  # tried, not found
