"""TLS on both sides, with certificates made here: HTTPS by uvicorn, and a store behind TLS that wants a certificate."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
import redis
import trustme

from service.errors import StoreUnavailable
from service.process.private_store import EmbeddedServer
from service.store.keys import state_key
from service.store.slots import SLOTS, slot_of
from tests.cluster import Server, cluster_options, free_ports, start, stop
from tests.running import command, service, wait_until_ready
from tests.storing import storing
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def folder(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem, and for the server and the client a certificate and a key"""
    found = tmp_path_factory.mktemp("certificates")
    authority.cert_pem.write_to_path(found / "ca.pem")
    for name, host in (("server", "127.0.0.1"), ("client", "horocycle.example")):
        issued = authority.issue_cert(host)
        issued.private_key_pem.write_to_path(found / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(found / f"{name}.pem")
    return found


def trusting(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(folder / "ca.pem"))


@pytest.mark.parametrize("workers", [1, 2])
def test_https(tmp_path: Path, folder: Path, workers: int) -> None:
    tls = {"HOROCYCLE_TLS_CERTIFICATE": str(folder / "server.pem"), "HOROCYCLE_TLS_KEY": str(folder / "server.key")}
    context = trusting(folder)
    with service(tmp_path / "data", workers=workers, verify=context, HOROCYCLE_FIT_WORKERS="0", **tls) as found:
        assert found.url.startswith("https://")
        with httpx.Client(base_url=found.url, verify=context, timeout=30) as http:
            assert http.post("/sessions", json={"id": "a", "dimension": 2}).status_code == 201
            assert http.post("/sessions/a/observe", json={"point": [0.1, 0.2], "label": 1}).status_code == 200
            own = {"origin": found.url, "sec-fetch-site": "same-origin"}
            assert http.patch("/sessions/a", json={"name": "x"}, headers=own).status_code == 200
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{found.url}/health/live")


def test_a_certificate_without_its_key_is_said(tmp_path: Path, folder: Path) -> None:
    told = command(
        "serve", "--port", "0", "--data", str(tmp_path), HOROCYCLE_TLS_CERTIFICATE=str(folder / "server.pem")
    )
    assert told.returncode == 2 and "go together" in told.stderr and "Traceback" not in told.stderr


def serving(folder: Path) -> ssl.SSLContext:
    """What wants a certificate, too"""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextmanager
def behind_tls(store: str | int, context: ssl.SSLContext) -> Iterator[int]:
    """A port where the store at this socket, or port, is spoken to through TLS"""
    loop = asyncio.new_event_loop()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while some := await reader.read(65536):
                writer.write(some)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_one = asyncio.open_connection("127.0.0.1", store) if isinstance(store, int) else None
        inward, outward = await (open_one or asyncio.open_unix_connection(str(store)))
        await asyncio.gather(copy(reader, outward), copy(inward, writer))

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.05))
        loop.close()


def test_a_store_behind_tls_that_wants_a_certificate_and_a_user(tmp_path: Path, folder: Path) -> None:
    with EmbeddedServer(tmp_path / "store") as server, redis.Redis.from_url(server.url) as store:
        store.execute_command(
            "ACL", "SETUSER", "horocycle", "on", ">a secret", "~hc:*", "+@all", "-@dangerous", "+info"
        )
        store.execute_command("ACL", "SETUSER", "default", "off")
        with behind_tls(str(tmp_path / "store" / "server.sock"), serving(folder)) as port:
            files = f"ssl_ca_certs={folder}/ca.pem&ssl_certfile={folder}/client.pem&ssl_keyfile={folder}/client.key"
            url = f"rediss://horocycle:a%20secret@127.0.0.1:{port}/0?{files}"
            with service(tmp_path / "data", REDIS_URL=url) as found:
                wait_until_ready(found.url)
                with httpx.Client(base_url=found.url, timeout=30) as http:
                    assert http.post("/sessions", json={"id": "a", "dimension": 2}).status_code == 201
                    body = {"points": [[0.1, 0.2], [-0.3, 0.1]], "labels": [1, -1]}
                    assert http.post("/sessions/a/observe", json=body).status_code == 200
                    assert http.get("/sessions/a").json()["observed"] == 2
            told = command("doctor", "--port", "0", REDIS_URL=f"rediss://horocycle:a%20secret@127.0.0.1:{port}/0")
            assert told.returncode == 1 and "WRONG the store at" in told.stdout and "secret" not in told.stdout


def test_a_cluster_behind_tls(tmp_path: Path, folder: Path) -> None:
    """Two masters, each of which tells of the other: a slot that moves is followed, over TLS too"""
    files = f"ssl_ca_certs={folder}/ca.pem&ssl_certfile={folder}/client.pem&ssl_keyfile={folder}/client.key"
    ports, servers = free_ports(4), list[Server]()
    with ExitStack() as started:
        proxies = [started.enter_context(behind_tls(port, serving(folder))) for port in ports[:2]]
        started.callback(stop, servers)
        for port, bus, via in zip(ports[:2], ports[2:], proxies, strict=True):
            options = (*cluster_options(tmp_path, bus), "--cluster-announce-port", str(via))
            servers.append(start(tmp_path / str(port), port, *options))
        wait_until(lambda: all(each.answers() for each in servers))
        for i, (first, last) in enumerate(((0, SLOTS // 2 - 1), (SLOTS // 2, SLOTS - 1))):
            servers[i].run("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            servers[i].run("CLUSTER", "ADDSLOTSRANGE", first, last)
        servers[0].run("CLUSTER", "MEET", "127.0.0.1", ports[1], ports[3])
        wait_until(lambda: all(each.info("cluster_state") == "ok" for each in servers))
        asyncio.run(_used(f"rediss+cluster://127.0.0.1:{proxies[0]}?{files}", servers))
        with pytest.raises(StoreUnavailable):
            asyncio.run(_used(f"rediss+cluster://127.0.0.1:{proxies[0]}?ssl_ca_certs={folder}/ca.pem", servers))


async def _used(url: str, servers: list[Server]) -> None:
    async with storing(url) as parts:
        await parts.connection.require_writable()
        ids = {slot_of(state_key(sid)) < SLOTS // 2: sid for sid in map(str, range(20))}
        for sid in ids.values():
            await parts.opened(id=sid)
            for n in (1, 2):
                answer = await parts.observe(sid, np.array([[0.1, 0.2]]), [1])
                assert answer.counters.observed == n
            assert await parts.connection.epoch(sid) > 0
        slot = next(slot for slot in range(SLOTS) if not servers[0].run("CLUSTER", "COUNTKEYSINSLOT", slot))
        key = next(key for key in map(str, range(10**6)) if slot_of(key) == slot)
        await parts.connection.call("EXISTS", key)
        for each in reversed(servers):
            each.run("CLUSTER", "SETSLOT", slot, "NODE", servers[1].id)
        assert await parts.connection.call("SET", key, 1) == b"OK"  # MOVED, and sent again
        assert servers[1].run("CLUSTER", "COUNTKEYSINSLOT", slot) == 1
