"""Real stores of several servers: a cluster of three masters and three replicas, or a master, a replica and three
sentinels, each a process on 127.0.0.1."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from service.process.private_store import find_server
from service.store.slots import SLOTS, slot_of
from tests.waiting import wait_until

#: Milliseconds after which a silent server counts as failed: also on a machine that is busy with other things.
TIMEOUT = 3000
#: As the private store has it, but that nothing waits for a disk.
COMMON = ("--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--bind", "127.0.0.1")


@dataclass
class Server:
    port: int
    process: subprocess.Popen[bytes]
    client: redis.Redis

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def run(self, *command: Any) -> Any:
        return self.client.execute_command(*command)  # type: ignore[no-untyped-call]

    def info(self, field: str) -> str:
        """Of what it knows of the cluster"""
        lines: list[str] = self.run("CLUSTER", "INFO").decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)[field]

    @property
    def id(self) -> str:
        told: bytes = self.run("CLUSTER", "MYID")
        return told.decode()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def answers(self) -> bool:
        with suppress(redis.RedisError):
            return bool(self.client.ping())
        return False


def free_ports(count: int) -> list[int]:
    with ExitStack() as open_ones:
        sockets = [open_ones.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def start(folder: Path, port: int, *options: str) -> Server:
    folder.mkdir(parents=True, exist_ok=True)
    words = [str(find_server()), *options, "--port", str(port), "--dir", str(folder)]
    with open(folder / "log", "ab") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder)
    # The replies as the server writes them, whatever redis-py makes of some
    client = redis.Redis(port=port, socket_timeout=10, retry=Retry(NoBackoff(), 0))
    client.response_callbacks.clear()
    return Server(port, process, client)


def stop(servers: list[Server]) -> None:
    for server in servers:
        server.client.close()
        with suppress(ProcessLookupError):
            server.process.send_signal(signal.SIGCONT)
            server.process.kill()
        server.process.wait()


# ----------------------------------------------------------------------------------------------------- a cluster


@dataclass
class Cluster:
    folder: Path
    servers: list[Server] = field(default_factory=list)
    options: dict[int, tuple[str, ...]] = field(default_factory=dict)  # by port
    announced: dict[int, int] = field(default_factory=dict)  # port → that of a proxy before it

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(each.address for each in self.servers[:3])

    def start(self, port: int, *options: str) -> Server:
        self.options[port] = options
        server = start(self.folder / str(port), port, *options)
        self.servers = [each for each in self.servers if each.port != port] + [server]
        return server

    def start_again(self, server: Server) -> Server:
        """One that was killed"""
        server.client.close()
        again = self.start(server.port, *self.options[server.port])
        wait_until(again.answers)
        return again

    @property
    def masters(self) -> list[Server]:
        """Those that serve slots, as they say themselves"""
        return [each for each in self.alive if b"myself,master" in self._nodes(each) and self._slots(each)]

    @property
    def alive(self) -> list[Server]:
        return [each for each in self.servers if each.process.poll() is None]

    def _nodes(self, server: Server) -> bytes:
        told: bytes = server.run("CLUSTER", "NODES")
        return told

    def _slots(self, server: Server) -> list[bytes]:
        [mine] = [line for line in self._nodes(server).splitlines() if b"myself" in line]
        return [word for word in mine.split()[8:] if not word.startswith(b"[")]

    @staticmethod
    def slot(key: str) -> int:
        return slot_of(key)

    def owner(self, key: str) -> Server:
        """Who serves a key: it answers itself"""
        found = self.owner_or_none(key)
        assert found is not None, f"nobody serves {key}"
        return found

    def owner_or_none(self, key: str) -> Server | None:
        slot = slot_of(key)
        for each in self.masters:
            for word in self._slots(each):
                first, _, last = word.partition(b"-")
                if int(first) <= slot <= int(last or first):
                    return each
        return None

    def replica_of(self, master: Server) -> Server:
        for each in self.alive:
            role = each.run("ROLE")
            if role[0] == b"slave" and int(role[2]) in (master.port, self.announced.get(master.port)):
                return each
        raise AssertionError(f"{master.port} has no replica")

    def is_whole(self) -> bool:
        """Everybody knows everybody, every slot is served, every replica is connected"""
        with suppress(redis.RedisError, KeyError):
            for each in self.alive:
                served = each.info("cluster_state") == "ok" and int(each.info("cluster_slots_ok")) == SLOTS
                if not served or int(each.info("cluster_known_nodes")) != len(self.servers):
                    return False
                role = each.run("ROLE")
                if role[0] == b"slave" and role[3] != b"connected":
                    return False
            return len(self.masters) == 3
        return False

    def move(self, key: str, source: Server, target: Server) -> None:
        """The slot of a key, whole: by SETSLOT and MIGRATE"""
        slot = self.begin_to_move(key, source, target)
        self.migrate(slot, source, target)
        self.end_move(slot, target)

    def begin_to_move(self, key: str, source: Server, target: Server) -> int:
        slot = slot_of(key)
        target.run("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.run("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        return slot

    def migrate(self, slot: int, source: Server, target: Server, most: int = 1 << 30) -> None:
        """Keys of a slot, one after another"""
        while most > 0 and (keys := source.run("CLUSTER", "GETKEYSINSLOT", slot, min(most, 10))):
            source.run("MIGRATE", "127.0.0.1", target.port, "", 0, 10_000, "KEYS", *keys)
            most -= len(keys)

    def end_move(self, slot: int, target: Server) -> None:
        """First the new owner: it has the greater epoch from then on"""
        for each in [target, *(each for each in self.masters if each is not target)]:
            each.run("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        # Who takes over the next one must know of this epoch, to have a greater one
        wait_until(lambda: len({each.info("cluster_current_epoch") for each in self.alive}) == 1)

    def abort_move(self, slot: int, source: Server, target: Server) -> None:
        """Before a key has moved: after that a move can only be finished"""
        for each in (source, target):
            each.run("CLUSTER", "SETSLOT", slot, "STABLE")


def cluster_options(folder: Path, bus: int) -> tuple[str, ...]:
    timeout = ("--cluster-node-timeout", str(TIMEOUT), "--cluster-port", str(bus), "--repl-diskless-sync-delay", "0")
    return ("--cluster-enabled", "yes", "--cluster-config-file", str(folder / f"nodes-{bus}.conf"), *timeout, *COMMON)


@contextmanager
def cluster(folder: Path, *, before: Callable[[int], int] | None = None) -> Iterator[Cluster]:
    """Three masters and three replicas. `before`: starts a proxy to the port of a master, and returns its own"""
    folder.mkdir(parents=True, exist_ok=True)
    found, ports = Cluster(folder), free_ports(12)
    try:
        if before is not None:
            found.announced = {port: before(port) for port in ports[:3]}
        for port, bus in zip(ports[:6], ports[6:], strict=True):
            via = ("--cluster-announce-port", str(found.announced[port])) if port in found.announced else ()
            found.start(port, *cluster_options(folder, bus), *via)
        wait_until(lambda: all(each.answers() for each in found.servers))
        _form(found, dict(zip(ports[:6], ports[6:], strict=True)))
        yield found
    finally:
        stop(found.servers)


def _form(found: Cluster, buses: dict[int, int]) -> None:
    masters, replicas = found.servers[:3], found.servers[3:]
    edges = [round(i * SLOTS / 3) for i in range(4)]
    for i, master in enumerate(masters):
        master.run("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        master.run("CLUSTER", "ADDSLOTSRANGE", edges[i], edges[i + 1] - 1)
    for each in found.servers[1:]:
        found.servers[0].run("CLUSTER", "MEET", "127.0.0.1", each.port, buses[each.port])
    wait_until(lambda: all(int(each.info("cluster_known_nodes")) == 6 for each in found.servers), 60)
    for master, replica in zip(masters, replicas, strict=True):
        _until_done(lambda m=master, r=replica: r.run("CLUSTER", "REPLICATE", m.id))  # type: ignore[misc]
    wait_until(found.is_whole, 60)


def _until_done(do: Callable[[], object]) -> None:
    """A node may not know of the other yet"""

    def done() -> bool:
        with suppress(redis.ResponseError):
            do()
            return True
        return False

    wait_until(done)


# ----------------------------------------------------------------------------------------------------- sentinels


@dataclass
class Watched:
    """A master, a replica, and three sentinels that watch them under the name `horocycle`"""

    servers: list[Server]
    sentinels: list[Server]

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(each.address for each in self.sentinels)}/horocycle"

    @property
    def master(self) -> Server:
        """As the first sentinel says"""
        told = self.sentinels[0].run("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "horocycle")
        return next(each for each in self.servers if each.port == int(told[1]))

    def set(self, option: str, value: int) -> None:
        for each in self.sentinels:
            each.run("SENTINEL", "SET", "horocycle", option, value)

    def is_whole(self) -> bool:
        """Every sentinel knows of the replica and of the others"""
        with suppress(redis.RedisError):
            for each in self.sentinels:
                told = each.run("SENTINEL", "MASTER", "horocycle")
                known = dict(zip(told[::2], told[1::2], strict=True)) if isinstance(told, list) else told
                if (known[b"num-slaves"], known[b"num-other-sentinels"]) != (b"1", b"2"):
                    return False
            return all(each.run("ROLE")[0] == b"master" or each.run("ROLE")[3] == b"connected" for each in self.servers)
        return False


@contextmanager
def sentinels(folder: Path) -> Iterator[Watched]:
    master, replica, *watching = free_ports(5)
    started: list[Server] = []
    try:
        fast = ("--repl-diskless-sync-delay", "0", *COMMON)
        started.append(start(folder / "master", master, *fast))
        started.append(start(folder / "replica", replica, *fast, "--replicaof", f"127.0.0.1 {master}"))
        for port in watching:
            file = folder / f"{port}" / "sentinel.conf"
            file.parent.mkdir(parents=True)
            file.write_text(
                f"sentinel monitor horocycle 127.0.0.1 {master} 2\n"
                f"sentinel down-after-milliseconds horocycle {TIMEOUT}\n"
                "sentinel failover-timeout horocycle 10000\nbind 127.0.0.1\n"
            )
            started.append(start(file.parent, port, str(file), "--sentinel"))
        found = Watched(started[:2], started[2:])
        wait_until(found.is_whole, 60)
        yield found
    finally:
        stop(started)
