"""Producers: who streams numbered messages to a session, so that each is applied once, through any number of cuts.

How far a producer has come is part of the session, written by the same commit as what it sent. Its messages are taken
in the order of their numbers and only from its newest connection; whatever an earlier one still has on its way is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.sessions.records import Producer
from service.sessions.requests import Request

#: Producers that a session remembers; those that were idle for longest are forgotten first.
MOST = 1000

Producers = Mapping[str, Producer]


def connected(producers: Producers, name: str, now: int) -> Producers:
    """With a new connection of this producer"""
    before = producers.get(name, Producer(0, 0, 0))
    found = {**producers, name: Producer(before.seq, before.connection + 1, now)}
    while len(found) > MOST:
        del found[min((each for each in found if each != name), key=lambda each: found[each].used)]
    return found


def out_of_turn(producers: Producers, requests: Sequence[Request]) -> list[int]:
    """The places of messages that are not the next of their producer, or not from its newest connection"""
    found, last = [], dict(producers)
    for place, request in enumerate(requests):
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
    messages = [request.numbered for request in requests if request.numbered is not None]
    if not messages:
        return producers
    return {**producers, **{each.producer: Producer(each.seq, each.connection, now) for each in messages}}
