"""URLs of stores that are several servers, and which slot a key is in."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from redis.crc import key_slot

from service.settings import Settings
from service.store import scripts
from service.store.connect import connect
from service.store.connection import Connection
from service.store.keys import born_key, fit_queue_key, session_keys
from service.store.slots import slot_of, slot_of_commands
from service.store_url import parse


def test_one_server_is_left_to_the_client() -> None:
    assert parse("redis://127.0.0.1:6379/0") is None
    assert type(connect("redis://127.0.0.1:6379/0")) is Connection


def test_a_cluster_is_some_of_its_servers() -> None:
    found = parse("rediss+cluster://me:a%20secret@one:7000,two,[::1]:7001?ssl_cert_reqs=none")
    assert found is not None and found.seeds == (("one", 7000), ("two", 6379), ("::1", 7001))
    assert found.server(("::1", 7001)) == "rediss://me:a%20secret@[::1]:7001?ssl_cert_reqs=none"


def test_sentinels_have_a_name_to_ask_for_and_secrets_of_their_own() -> None:
    found = parse("redis+sentinel://:secret@one,two:26380/horocycle/3?sentinel_password=other&socket_keepalive=yes")
    assert found is not None and (found.name, found.database) == ("horocycle", 3)
    assert found.server(("m", 1)) == "redis://:secret@m:1/3?socket_keepalive=yes"
    assert found.sentinel(found.seeds[0]) == "redis://:other@one:26379?socket_keepalive=yes"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis+cluster://", "names no server"),
        ("redis+cluster://one:0", "no host:port"),
        ("redis+cluster://one:7000/3", "no databases"),
        ("redis+sentinel://one:26379", "the name"),
        ("redis+sentinel://one/name/x", "a number"),
        ("redis+ring://one", "is not known"),
        ("http+cluster://one", "is not known"),
    ],
)
def test_what_is_wrong_is_said_when_the_service_starts(url: str, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Settings(redis_url=url)


@pytest.mark.parametrize("key", ["123456789", "{a}b", "{}a", "a{b", "a}b{c}d", "{a}{b}", "{{a}}", "ä{ö}", ""])
def test_slots_are_those_of_the_protocol(key: str) -> None:
    assert slot_of(key) == key_slot(key.encode())
    assert slot_of("123456789") == 0x31C3 % 16384  # the check value of CRC16/XMODEM


def test_a_command_goes_where_its_keys_are() -> None:
    keys = [born_key("a"), *session_keys("a")]
    slot = slot_of("a")
    assert {slot_of(key) for key in keys} == {slot}
    evaluate = ("EVALSHA", scripts.COMMIT.digest, len(keys), *keys)
    block = ("HSET", keys[1], "name", b"data")
    assert slot_of_commands([evaluate]) == slot_of_commands([("MULTI",), block, evaluate, ("EXEC",)]) == slot
    assert slot_of_commands([("XREAD", "COUNT", 1, "STREAMS", keys[2], "0-0")]) == slot
    assert slot_of_commands([("XINFO", "STREAM", keys[2])]) == slot
    assert slot_of_commands([("ZADD", fit_queue_key(), 1, "x")]) == slot_of(fit_queue_key())
    assert slot_of_commands([("PING",)]) is None
