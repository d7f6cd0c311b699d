"""Producers: who streams numbered messages to a session, so that each is applied once, through any number of cuts.

How far a producer has come is part of the session, written by the same commit as what it sent. Its messages are taken
in the order of their numbers and only from its newest connection; whatever an earlier one still has on its way is not.
Who numbers its connections itself is not cut off by an earlier attempt of its own that arrives late (a fencing token).

A stream elsewhere that is consumed (service/consume) is a producer, too. Its number is the id of the last entry, and it
has no connections: what comes next says behind which entry it stands, and is taken if the session stands there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.errors import EarlierConnection
from service.sessions.records import Producer
from service.sessions.requests import Consumed, Request

#: Producers that a session remembers; those that were idle for longest are forgotten first.
MOST = 1000

Producers = Mapping[str, Producer]


def connected(producers: Producers, name: str, now: int, connection: int | None = None) -> Producers:
    """With a new connection of this producer: the next, or this one. EarlierConnection: it is not newer"""
    before = producers.get(name, Producer(0, 0, 0))
    connection = before.connection + 1 if connection is None else connection
    if connection <= before.connection:
        raise EarlierConnection(name, connection, before.connection)
    return _bounded({**producers, name: Producer(before.seq, connection, now)}, name)


def position(producers: Producers, name: str) -> int:
    """How far this one has come"""
    return producers[name].seq if name in producers else 0


def moved(producers: Producers, consumed: Consumed, now: int) -> Producers:
    """After these entries"""
    return _bounded({**producers, consumed.producer: Producer(consumed.last, 0, now)}, consumed.producer)


def _bounded(producers: dict[str, Producer], newest: str) -> Producers:
    while len(producers) > MOST:
        del producers[min((each for each in producers if each != newest), key=lambda each: producers[each].used)]
    return producers


def out_of_turn(producers: Producers, requests: Sequence[Request]) -> list[int]:
    """The places of messages and entries that are not the next of their producer, or not from its newest connection"""
    found, last = [], dict(producers)
    for place, request in enumerate(requests):
        if (entries := request.consumed) is not None:
            if position(last, entries.producer) != entries.after:
                found.append(place)
            else:
                last[entries.producer] = Producer(entries.last, 0, 0)
        if (message := request.numbered) is None:
            continue
        producer = last.get(message.producer)
        if producer is None or (producer.connection, producer.seq + 1) != (message.connection, message.seq):
            found.append(place)
        else:
            last[message.producer] = producer._replace(seq=message.seq)
    return found


def advanced(producers: Producers, requests: Sequence[Request], now: int) -> Producers:
    """After these messages, each in its turn; the very same if there are none"""
    for consumed in [request.consumed for request in requests if request.consumed is not None]:
        producers = moved(producers, consumed, now)
    messages = [request.numbered for request in requests if request.numbered is not None]
    if not messages:
        return producers
    return {**producers, **{each.producer: Producer(each.seq, each.connection, now) for each in messages}}
