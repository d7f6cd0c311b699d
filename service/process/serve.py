"""serve: supervises the private store (if no REDIS_URL is configured), the workers and the fit workers."""

from __future__ import annotations

import errno
import importlib.util
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import redis
import uvicorn

from service import telemetry
from service.errors import LaunchError, ServerFailed
from service.logs import configure
from service.process.direct_http import DirectHttp
from service.process.http_protocol import GRACE, KEEP_ALIVE, raise_file_limit
from service.process.messages import Messages
from service.process.private_store import EmbeddedServer
from service.process.store_format import connect, require_format
from service.process.workers import Workers, run_alone
from service.settings import Settings

log = logging.getLogger(__name__)
HEALTH_TIMEOUT = 20  # seconds after which a worker that does not answer its health check is killed and replaced
RESTART_DELAY = 0.5  # seconds before an ended fit worker is started again
PORT_PATIENCE = 4.0  # seconds that a port may be in use at start: it may be that of a launcher that was killed
STORE_PATIENCE = 1.0  # seconds that a configured store may take to answer each question at start


def serve(settings: Settings) -> int:
    """Run until SIGINT or SIGTERM. The exit code: 1 if it cannot be run here, with one sentence on stderr"""
    configure(logging.INFO if settings.access_log else logging.WARNING)
    raise_file_limit()
    if settings.otel and _lacks("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"):
        return _refuse("otel needs packages that are not installed: pip install 'horocycle[otel]'")
    refused = list[str]()
    with ExitStack() as running:
        try:
            listening = running.enter_context(_listen(settings.host, settings.port))
            url = _store(settings, running, refused)
        except OSError as error:
            return _refuse(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}")
        except LaunchError as error:
            return _refuse(error.detail)
        _banner(settings, listening.getsockname()[1])
        _export(settings.model_copy(update={"redis_url": url}))
        for _ in range(settings.fit_workers):
            running.enter_context(_fit_worker())
        _run_workers(settings, listening, running)
    return _refuse(refused[0]) if refused else 0


def _lacks(*modules: str) -> bool:
    try:
        return any(importlib.util.find_spec(each) is None for each in modules)
    except ModuleNotFoundError:  # a package that they are in
        return True


def _listen(host: str, port: int) -> socket.socket:
    """The workers of a killed launcher hold its port until they notice that it is gone: wait for that"""
    deadline = time.monotonic() + PORT_PATIENCE
    while True:
        try:
            return socket.create_server((host, port), backlog=2048)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def _store(settings: Settings, running: ExitStack, refused: list[str]) -> str:
    """The URL of the store, once its format is known to be ours

    A configured store may not answer now: the service starts all the same, says so, and answers 503 until it does. Its
    format is checked as soon as it answers; if it is another, that is put into `refused` and the service ends.
    """
    if settings.redis_url is None:
        server = running.enter_context(EmbeddedServer(settings.data))
        try:
            with connect(server.url, server.patience) as client:
                require_format(client, f"the data folder {settings.data}")
        except redis.RedisError as error:
            raise ServerFailed(f"the private store in {settings.data} failed at its first command: {error}") from error
        return server.url
    url = settings.redis_url

    def check() -> None:
        with connect(url, STORE_PATIENCE) as client:
            require_format(client, "the store at REDIS_URL")

    try:
        check()
    except redis.RedisError as error:
        log.warning(
            "the store does not answer yet, and requests get 503 until it does; the format of the store was not"
            " checked: %s",
            error,
        )
        running.enter_context(_until_checked(check, refused))
    return url


@contextmanager
def _until_checked(check: Callable[[], None], refused: list[str]) -> Iterator[None]:
    """Check again and again until the store answers, or the block ends"""
    ending = threading.Event()

    def again() -> None:
        while not ending.wait(STORE_PATIENCE):
            try:
                return check()
            except redis.RedisError:
                continue
            except LaunchError as error:
                refused.append(error.detail)
                return os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=again, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def _export(settings: Settings) -> None:
    """To the workers and fit workers, which read their settings from the environment"""
    for name, value in settings.model_dump(mode="json").items():
        text = ",".join(value) if isinstance(value, list) else str(value)
        if value is not None:
            os.environ[f"HOROCYCLE_{name.upper()}"] = text
    # A refit runs beside the event loop: BLAS threads that spin for a core would cost it more than they give.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _run_workers(settings: Settings, listening: socket.socket, running: ExitStack) -> None:
    """Until SIGINT or SIGTERM; a single worker runs in this process"""
    os.environ.pop(telemetry.FOLDER, None)
    folder = running.enter_context(TemporaryDirectory(prefix="horocycle-", dir=_memory()))
    if settings.workers > 1:
        os.environ[telemetry.FOLDER] = folder
        Workers(_config(settings), listening, Path(folder)).run()
    else:
        run_alone(partial(_config, settings), listening, Path(folder))


def _config(settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        "service.process.worker:app",
        factory=True,
        http=DirectHttp,
        workers=settings.workers,
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # no code here uses the client's address
        ws=Messages,
        ws_max_size=settings.body_limit,
        ws_per_message_deflate=False,  # numbers hardly shrink
        server_header=False,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
        timeout_worker_healthcheck=HEALTH_TIMEOUT,
    )


def _memory() -> str | None:
    """A file system in memory, so that metrics do not add to the disk writes that commits wait for; None: /tmp"""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None


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
    address = f"http{'s' if settings.tls_certificate else ''}://{settings.host}:{port}"
    store = "the configured store" if settings.redis_url else f"a private store in {settings.data}/"
    sys.stdout.write(f"Horocycle on {address} with {store}\n")
    sys.stdout.write(f"  docs  {address}/docs\n")
    if settings.with_keys:
        sys.stdout.write("  keys  are asked for: python -m service keys add\n")
    sys.stdout.write(f'  try   curl {address}/sessions --json \'{{"id": "demo", "dimension": 2}}\'\n')
    sys.stdout.flush()


def _refuse(sentence: str) -> int:
    sys.stderr.write(sentence + "\n")
    return 1
