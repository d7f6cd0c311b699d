"""The command line: serve runs the store, if none is configured, and the workers; doctor says what is wrong here."""

from __future__ import annotations

import argparse
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
from pydantic import ValidationError
from uvicorn.supervisors import Multiprocess

from service import telemetry
from service.errors import LaunchError
from service.logs import configure
from service.process.private_store import EmbeddedServer, find_server
from service.settings import Settings

OLDEST = (6, 2)  # of Redis
GRACE = 10  # seconds that requests in flight have to finish
SILENCE = 20  # seconds after which a worker that gives no sign of life is replaced


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m service", description="Horocycle, served over HTTP.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help in (("serve", "run the service"), ("doctor", "say what is wrong with this environment")):
        command = commands.add_parser(name, help=help)
        for setting in ("host", "port", "workers", "data", "redis_url"):
            field = Settings.model_fields[setting]
            command.add_argument(f"--{setting.replace('_', '-')}", help=f"{field.description} ({field.default})")
    arguments = vars(parser.parse_args(argv))
    command = arguments.pop("command")
    try:
        settings = Settings(**{name: value for name, value in arguments.items() if value is not None})
    except ValidationError as error:
        for wrong in error.errors():
            _say(f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}", error=True)
        return 2
    return serve(settings) if command == "serve" else doctor(settings)


def serve(settings: Settings) -> int:
    configure(logging.INFO if settings.access_log else logging.WARNING)
    with ExitStack() as running:
        try:
            listening = running.enter_context(socket.create_server((settings.host, settings.port), backlog=2048))
            url = settings.redis_url or running.enter_context(EmbeddedServer(settings.data)).url
        except OSError as error:
            _say(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}", error=True)
            return 1
        except LaunchError as error:
            _say(error.detail, error=True)
            return 1
        _banner(settings, listening.getsockname()[1])
        for name, value in settings.model_copy(update={"redis_url": url}).model_dump(mode="json").items():
            os.environ[f"HOROCYCLE_{name.upper()}"] = str(value)
        config = uvicorn.Config(
            "service.process.worker:app",
            factory=True,
            workers=settings.workers,
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,  # nobody here asks where a request came from
            timeout_graceful_shutdown=GRACE,
            timeout_worker_healthcheck=SILENCE,
        )
        for _ in range(settings.fit_workers):
            running.enter_context(_fit_worker())
        if settings.workers > 1:
            os.environ[telemetry.FOLDER] = running.enter_context(TemporaryDirectory(prefix="horocycle-"))
            _Workers(config, sockets=[listening]).run()
        else:
            for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises them again when it is done; we are not
                signal.signal(number, lambda *_: None)
            uvicorn.Server(config).run(sockets=[listening])
    return 0


class _Workers(Multiprocess):
    """uvicorn's, except that one that is killed while it is asked for a sign of life is missed at once

    uvicorn keeps the worker's end of their pipe open: nobody would hear that it closed, and for SILENCE seconds the
    worker would not be replaced, nor a signal be heard.
    """

    def init_processes(self) -> None:
        super().init_processes()
        self._let_go()

    def keep_subprocess_alive(self) -> None:
        super().keep_subprocess_alive()
        self._let_go()

    def _let_go(self) -> None:
        for process in self.processes:
            process.child_conn.close()


@contextmanager
def _fit_worker() -> Iterator[None]:
    """A process that fits, begun anew whenever it dies, until the block ends; it ends when its standard input does"""
    ending, command = threading.Event(), [sys.executable, "-m", "service.fits.worker", "--follow"]
    running: list[subprocess.Popen[bytes]] = []

    def keep() -> None:
        while not ending.is_set():
            running[:] = [subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)]
            running[0].wait()
            ending.wait(0.5)

    keeper = threading.Thread(target=keep, daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ending.set()
        while keeper.is_alive():
            for process in running:
                process.terminate()
            keeper.join(0.2)


def doctor(settings: Settings) -> int:
    """Every check, with what to do about it; the exit code counts what is wrong."""
    wrong = 0
    for good, line in _checks(settings):
        wrong += not good
        _say(f"{'ok   ' if good else 'WRONG'} {line}")
    return min(wrong, 1)


def _checks(settings: Settings) -> Iterator[tuple[bool, str]]:
    yield sys.version_info >= (3, 11), f"Python {sys.version.split()[0]}; 3.11 or newer is needed"
    try:
        with socket.create_server((settings.host, settings.port)):
            yield True, f"{settings.host}:{settings.port} is free"
    except OSError as error:
        yield False, f"{settings.host}:{settings.port} cannot be listened on: {error.strerror}; try --port"
    if settings.redis_url is None:
        yield from _private(settings.data)
    else:
        yield from _configured(settings.redis_url)


def _private(data: Path) -> Iterator[tuple[bool, str]]:
    try:
        yield True, f"the private store is {find_server()}"
        with EmbeddedServer(data) as server:
            yield True, f"it runs in {data.resolve()}"
            yield from _configured(server.url)
    except LaunchError as error:
        yield False, error.detail


def _configured(url: str) -> Iterator[tuple[bool, str]]:
    try:
        with redis.Redis.from_url(url, socket_timeout=3, socket_connect_timeout=3) as client:
            version = str(client.info("server")["redis_version"])
            new = tuple(map(int, version.split(".")[:2])) >= OLDEST
            yield new, f"the store speaks as Redis {version}; 6.2 or newer is needed"
            memory, disk = client.info("memory"), client.info("persistence")
            policy = memory.get("maxmemory_policy")
            yield policy == "noeviction", f"maxmemory-policy is {policy}; noeviction keeps what was acknowledged"
            yield bool(disk["aof_enabled"]), "appendonly keeps acknowledged points across a crash; on is needed"
    except redis.RedisError as error:
        yield False, f"the store at {url.split('@')[-1]} does not answer: {error}"


def _banner(settings: Settings, port: int) -> None:
    address = f"http://{settings.host}:{port}"
    store = "the configured store" if settings.redis_url else f"a private store in {settings.data}/"
    _say(f"Horocycle on {address} with {store}")
    _say(f"  docs  {address}/docs")
    _say(f'  try   curl {address}/sessions --json \'{{"id": "demo", "dimension": 2}}\'')


def _say(line: str, *, error: bool = False) -> None:
    stream = sys.stderr if error else sys.stdout
    stream.write(line + "\n")
    stream.flush()
