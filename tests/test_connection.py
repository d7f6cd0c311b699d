"""The line to the store: one connection for many callers, answered in order, each by its deadline."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis

from service.errors import OutcomeUnknown, StoreUnavailable
from service.process.private_store import EmbeddedServer
from service.store import scripts
from service.store.connection import LARGE, Connection


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path_factory.mktemp("line") / "data") as running:
        yield running


@contextmanager
def stopped(server: EmbeddedServer) -> Iterator[None]:
    """Meanwhile it answers nobody"""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def clients(server: EmbeddedServer) -> int:
    with redis.Redis.from_url(server.url) as asking:
        return len(asking.client_list()) - 1


async def in_a_moment() -> None:
    """Everything that can run without the store has run"""
    for _ in range(5):
        await asyncio.sleep(0)


def test_many_callers_share_one_connection_and_each_gets_its_own_reply(server: EmbeddedServer) -> None:
    async def ask() -> int:
        connection = Connection(server.url)
        try:
            replies = await asyncio.gather(*(connection.call("ECHO", f"{i}") for i in range(1000)))
            assert replies == [b"%d" % i for i in range(1000)]
            return await asyncio.to_thread(clients, server)
        finally:
            await connection.close()

    assert asyncio.run(ask()) == 1


def test_who_leaves_the_line_does_not_take_another_ones_reply(server: EmbeddedServer) -> None:
    async def ask() -> None:
        connection = Connection(server.url)
        try:
            await connection.ping()
            with stopped(server):
                asked = [asyncio.ensure_future(connection.call("ECHO", f"{i}")) for i in range(20)]
                await in_a_moment()
                for task in asked[::2]:
                    task.cancel()
                await in_a_moment()
            kept = await asyncio.gather(*asked[1::2])
            assert kept == [b"%d" % i for i in range(1, 20, 2)]
            assert await connection.call("ECHO", "next") == b"next"
        finally:
            await connection.close()

    asyncio.run(ask())


def test_a_silent_store_is_given_up_by_the_deadline_and_asked_again_on_another_connection(
    server: EmbeddedServer,
) -> None:
    async def ask() -> None:
        connection = Connection(server.url, deadline=0.3)
        try:
            await connection.ping()
            with stopped(server):
                with pytest.raises(OutcomeUnknown):
                    await connection.call("INCR", "count", lost=OutcomeUnknown)
                with pytest.raises(StoreUnavailable, match="does not answer"):  # not even sent: nothing to wonder about
                    await connection.call("INCR", "count", lost=OutcomeUnknown)
            while True:
                try:
                    assert await connection.call("GET", "count") == b"1"
                    return
                except StoreUnavailable:  # on a busy machine it may take a while to come back
                    continue
        finally:
            await connection.close()

    asyncio.run(ask())


def test_whoever_waits_hears_at_once_that_the_connection_is_gone(server: EmbeddedServer) -> None:
    async def ask() -> None:
        connection = Connection(server.url, deadline=60)
        try:
            await connection.ping()
            os.kill(server.pid, signal.SIGSTOP)
            asked = [asyncio.ensure_future(connection.call("PING", lost=OutcomeUnknown)) for _ in range(3)]
            await in_a_moment()
            os.kill(server.pid, signal.SIGKILL)
            outcomes = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 30)
            assert all(isinstance(each, OutcomeUnknown) for each in outcomes)
        finally:
            await connection.close()

    asyncio.run(ask())


def test_commands_before_a_script_are_one_transaction_with_it(server: EmbeddedServer) -> None:
    """One fsync for both; the script may not be known to the store yet"""
    block = os.urandom(3 * LARGE)
    script = scripts.script("return redis.call('HGET', KEYS[1], 'block') .. ARGV[1] -- some new script")

    async def ask() -> None:
        connection = Connection(server.url)
        try:
            found = await connection.script(script, ["a hash"], "!", first=[("HSET", "a hash", "block", block)])
            assert found == block + b"!"
            with pytest.raises(StoreUnavailable, match="WRONGTYPE"):
                await connection.script(script, ["a hash"], "!", first=[("INCR", "a hash")])
            assert await connection.script(script, ["a hash"], "?") == block + b"?"
        finally:
            await connection.close()

    with redis.Redis.from_url(server.url) as watching:
        while True:  # the server may just have been restarted
            try:
                watching.ping()
                break
            except redis.ConnectionError:
                continue
        asyncio.run(ask())
        assert watching.info("commandstats")["cmdstat_exec"]["calls"] >= 2


def test_any_other_word_of_the_store_is_a_503_that_names_it(server: EmbeddedServer) -> None:
    with redis.Redis.from_url(server.url) as admin:
        admin.acl_setuser("limited", enabled=True, passwords=["+secret"], commands=["+ping", "+select"], keys=["*"])

    async def ask(user: str, word: str) -> None:
        connection = Connection(f"unix://{user}@{server.url.removeprefix('unix://')}?db=1")
        try:
            with pytest.raises(StoreUnavailable, match=word):
                await connection.call("GET", "x")
            with pytest.raises(StoreUnavailable):
                await connection.read("GET", "x")
        finally:
            await connection.close()

    asyncio.run(ask("limited:secret", "NOPERM"))
    asyncio.run(ask("limited:wrong", "WRONGPASS"))
