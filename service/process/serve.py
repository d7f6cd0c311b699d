"""serve: supervises the private store (if no REDIS_URL is configured), the workers and the fit workers."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import redis
import uvicorn
from uvicorn.supervisors import Multiprocess

from service import telemetry, telemetry_files
from service.errors import LaunchError, ServerFailed
from service.logs import configure
from service.process.private_store import EmbeddedServer
from service.process.store_format import connect, require_format
from service.settings import Settings

log = logging.getLogger(__name__)
GRACE = 10  # seconds that requests in flight have to finish after SIGTERM
HEALTH_TIMEOUT = 20  # seconds after which a worker that does not answer its health check is killed and replaced
RESTART_DELAY = 0.5  # seconds before an ended fit worker is started again
STORE_PATIENCE = 1.0  # seconds that a configured store may take to answer each question at start


def serve(settings: Settings) -> int:
    """Run until SIGINT or SIGTERM. The exit code: 1 if it cannot be run here, with one sentence on stderr"""
    configure(logging.INFO if settings.access_log else logging.WARNING)
    with ExitStack() as running:
        try:
            listening = running.enter_context(socket.create_server((settings.host, settings.port), backlog=2048))
            url = _store(settings, running)
        except OSError as error:
            return _refuse(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}")
        except LaunchError as error:
            return _refuse(error.detail)
        _banner(settings, listening.getsockname()[1])
        _export(settings.model_copy(update={"redis_url": url}))
        for _ in range(settings.fit_workers):
            running.enter_context(_fit_worker())
        _run_workers(settings, listening, running)
    return 0


def _store(settings: Settings, running: ExitStack) -> str:
    """The URL of the store, once its format is known to be ours

    A configured store may not answer now: the service starts all the same, and answers 503 until the store does.
    """
    if settings.redis_url is None:
        server = running.enter_context(EmbeddedServer(settings.data))
        try:
            with connect(server.url, server.patience) as client:
                require_format(client, f"the data folder {settings.data}")
        except redis.RedisError as error:
            raise ServerFailed(f"the private store in {settings.data} failed at its first command: {error}") from error
        return server.url
    try:
        with connect(settings.redis_url, STORE_PATIENCE) as client:
            require_format(client, "the store at REDIS_URL")
    except redis.RedisError as error:
        log.warning("the format of the store was not checked: %s", error)
    return settings.redis_url


def _export(settings: Settings) -> None:
    """To the workers and fit workers, which read their settings from the environment"""
    for name, value in settings.model_dump(mode="json").items():
        os.environ[f"HOROCYCLE_{name.upper()}"] = str(value)
    # A refit runs beside the event loop: BLAS threads that spin for a core would cost it more than they give.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _run_workers(settings: Settings, listening: socket.socket, running: ExitStack) -> None:
    """Until SIGINT or SIGTERM; a single worker runs in this process"""
    config = uvicorn.Config(
        "service.process.worker:app",
        factory=True,
        workers=settings.workers,
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # no code here uses the client's address
        timeout_graceful_shutdown=GRACE,
        timeout_worker_healthcheck=HEALTH_TIMEOUT,
    )
    os.environ.pop(telemetry.FOLDER, None)
    if settings.workers > 1:
        folder = running.enter_context(TemporaryDirectory(prefix="horocycle-", dir=_memory()))
        os.environ[telemetry.FOLDER] = folder
        _Workers(config, listening, Path(folder)).run()
    else:
        for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises them again after its shutdown: ignore that
            signal.signal(number, lambda *_: None)
        uvicorn.Server(config).run(sockets=[listening])


def _memory() -> str | None:
    """A file system in memory, so that metrics do not add to the disk writes that commits wait for; None: /tmp"""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None


class _Workers(Multiprocess):
    """uvicorn's supervisor, which also retires the metrics of workers that have ended

    It closes its copy of the worker's end of their pipe, which uvicorn keeps open. So a health check of a worker that
    is killed ends with EOF at once; else it would wait HEALTH_TIMEOUT seconds, and handle no signal meanwhile.
    """

    def __init__(self, config: uvicorn.Config, listening: socket.socket, metrics: Path) -> None:
        super().__init__(config, sockets=[listening])
        self._metrics = metrics

    def init_processes(self) -> None:
        super().init_processes()
        self._close_child_ends()

    def keep_subprocess_alive(self) -> None:
        super().keep_subprocess_alive()
        self._close_child_ends()
        telemetry_files.retire(self._metrics, {process.pid for process in self.processes if process.pid})

    def _close_child_ends(self) -> None:
        for process in self.processes:
            process.child_conn.close()


@contextmanager
def _fit_worker() -> Iterator[None]:
    """A fit worker, restarted whenever it ends, until the block ends; it exits at EOF on stdin if we are killed"""
    ending, command = threading.Event(), [sys.executable, "-m", "service.fits.worker", "--follow"]
    running: list[subprocess.Popen[bytes]] = []

    def supervise() -> None:
        while not ending.is_set():
            running[:] = [subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)]
            running[0].wait()
            ending.wait(RESTART_DELAY)

    supervisor = threading.Thread(target=supervise, daemon=True)
    supervisor.start()
    try:
        yield
    finally:
        ending.set()
        while supervisor.is_alive():
            for process in running:
                process.terminate()
            supervisor.join(0.2)


def _banner(settings: Settings, port: int) -> None:
    address = f"http://{settings.host}:{port}"
    store = "the configured store" if settings.redis_url else f"a private store in {settings.data}/"
    sys.stdout.write(f"Horocycle on {address} with {store}\n")
    sys.stdout.write(f"  docs  {address}/docs\n")
    sys.stdout.write(f'  try   curl {address}/sessions --json \'{{"id": "demo", "dimension": 2}}\'\n')
    sys.stdout.flush()


def _refuse(sentence: str) -> int:
    sys.stderr.write(sentence + "\n")
    return 1
