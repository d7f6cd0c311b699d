"""Heads of observes that were parsed before: a client that keeps its connection sends the same bytes again and again.

Up to the body and the value of its Idempotency-Key, a request of one client is mostly the same as its last. What these
bytes mean is remembered, so that they are parsed once: a head that is found here is equal, byte for byte, to one that
the HTTP parser has taken and that ended just there, but for a key of printable characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from starlette.types import Scope

if TYPE_CHECKING:
    from service.api.context import Context
    from service.sessions.requests import Answer, Unread
    from service.sessions.spec import Spec

#: How a request begins whose head may be remembered, and the longest; how many are: then it begins anew.
OBSERVE, LONGEST, REMEMBERED = b"POST /sessions/", 1024, 4096
END = b"\r\n\r\n"
#: Headers of requests that are not remembered.
OWN = {b"x-request-id", b"authorization", b"cookie"}
KEY = b"\r\nidempotency-key:"


class Asked(Protocol):
    """What the head of an observe asks for"""

    def plainly(self, here: Context, spec: Spec, key: str | None, body: bytes) -> Unread | None:
        """The request, if nothing has to be waited for but its turn and its commit"""

    def told(self, spec: Spec, answer: Answer) -> bytes:
        """The body of its answer"""

    async def acknowledged(self, here: Context, spec: Spec, answer: Answer) -> tuple[bytes, Mapping[str, str]]:
        """The same, and headers, once it is known which store has answered"""


class Head:
    """The head of a request for a hot route; of an observe with the session's id. `asked`: once it was found out"""

    __slots__ = ("asked", "keep_alive", "length", "name", "scope", "sid")

    def __init__(self, scope: Scope, sid: str, length: int, keep_alive: bool) -> None:
        self.scope, self.sid, self.length, self.keep_alive = scope, sid, length, keep_alive
        self.asked: Asked | None = None
        self.name: bytes | None = None  # its X-Request-ID

    def scope_of(self, key: str | None) -> dict[str, Any]:
        """For one request, with its own key"""
        headers = self.scope["headers"]
        if key is not None:
            value = key.encode("latin-1")
            headers = [(name, value if name == b"idempotency-key" else other) for name, other in headers]
        return {**self.scope, "headers": headers}


class Heads(dict[bytes, Head]):
    """By their bytes without the value of an Idempotency-Key"""

    def remember(self, template: bytes, key: str | None, head: Head) -> None:
        """Unless there is something else in it that is another one in every request, or a secret"""
        names = [name for name, _ in head.scope["headers"]]
        if not head.sid or not template or names.count(b"idempotency-key") != (key is not None) or OWN & {*names}:
            return
        if len(self) >= REMEMBERED:
            self.clear()
        self[template] = head


def template_of(head: bytes) -> tuple[bytes, str | None]:
    """A head without the value of its Idempotency-Key, and that value. b"": the value may mean more than itself"""
    at = head.lower().find(KEY)
    if at < 0:
        return head, None
    start = at + len(KEY)
    end = head.find(b"\r\n", start)
    end = end if end > 0 else len(head)
    key = head[start:end].strip(b" ").decode("latin-1")
    return (head[:start] + head[end:], key) if key.isascii() and key.isprintable() and key else (b"", None)
