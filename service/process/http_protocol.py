"""uvicorn's HTTP protocol with what it lacks: deadlines for headers, bodies and answers, and a cap on connections.

A connection that waits for a request is idle. When there are more connections than the cap, the one that has been idle
longest gives way to the newest; if none is idle, the newest is told to come back. So silent sockets shut nobody out.
One sweep a worker closes those that are over a deadline: a request costs no timer of its own.

A worker that another one replaces drains: a client may be sending on a connection that looks idle from here, so those
are not closed at once. The next request on each is answered with `connection: close`; those that stay silent for as
long as a kept-alive connection may be are closed then, as they would be at any time.
"""

from __future__ import annotations

import asyncio
import math
import re
import resource
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

#: Bytes of a request line and its headers.
HEADER_BYTES = 65536
#: Bytes of a body that earn it a second more: a snapshot in pieces may be large.
SLOWEST = 1 << 18
#: A line of headers that asks for another protocol.
UPGRADE = re.compile(rb"\r\nupgrade:(?![ \t]*websocket)[^\r\n]*", re.IGNORECASE)
#: Files that a worker may open beside its connections.
SPARE_FILES = 128
#: Seconds that a connection is kept for another request.
KEEP_ALIVE = 5
#: Seconds that requests under way have to finish after SIGTERM.
GRACE = 10


@dataclass(frozen=True)
class Limits:
    connections: int = 4096
    header_seconds: float = 10.0
    body_seconds: float = 60.0

    @property
    def sweep(self) -> float:
        """Seconds between two looks for those that are over a deadline"""
        return min(self.header_seconds, self.body_seconds) / 4

    @property
    def longest(self) -> int:
        """Seconds after which every request that was under way has ended, if it was read and answered at all"""
        return int(self.header_seconds + 2 * self.body_seconds) + 1


def below_file_limit(connections: int) -> int:
    """A cap on connections that leaves some of the files that this process may open"""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return connections if soft == resource.RLIM_INFINITY else max(min(connections, soft - SPARE_FILES), 1)


def without_upgrade(data: bytes) -> bytes:
    """A request that asks for another protocol, as `curl --http2` does for h2c, is answered in HTTP/1.1: RFC 9110, 7.8,
    allows that. The parser would take what follows the headers for that protocol's, and lose the body."""
    head, end, rest = data.partition(b"\r\n\r\n")
    return UPGRADE.sub(b"", head) + end + rest


def raise_file_limit() -> None:
    """The soft limit on open files up to the hard one, for this process and those it starts"""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class BoundedHttp(HttpToolsProtocol):
    """One connection. `limits` is set once a process, before the first connection"""

    limits: ClassVar[Limits] = Limits()
    idle: ClassVar[OrderedDict[BoundedHttp, None]] = OrderedDict()  # those that wait for a request, longest first
    sweeping: ClassVar[asyncio.TimerHandle | None] = None
    draining: ClassVar[bool] = False  # another worker has taken this one's place
    stopping: ClassVar[bool] = False  # and now the service ends: nobody is waited for any more
    stopped: ClassVar[float] = math.inf  # when those that were busy then are cut off

    began = heard = 0.0  # when it began to wait for headers, or for the body; when it was last heard of
    served = False  # a request before, and is kept for another
    body_bytes = 0  # received since the headers were whole
    stuck: float | None = None  # since when nobody has read what was written
    answering: RequestResponseCycle | None = None  # others may wait behind it in the pipeline
    header_bytes: int | None = None  # of a request that has begun, while its headers are not whole

    # ------------------------------------------------------------------------------- what uvicorn calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()
        if len(self.connections) > self.limits.connections:
            self._make_room()
        if BoundedHttp.sweeping is None:
            BoundedHttp.sweeping = self.loop.call_later(self.limits.sweep, self._sweep)

    def connection_lost(self, exc: Exception | None) -> None:
        self.idle.pop(self, None)
        if self.answering is not None:  # uvicorn tells the request that it has read last
            self.answering.disconnected = True
            self.answering.message_event.set()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.answering = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        self.heard = self.loop.time()
        if self in self.idle and (
            data.find(b"pgrade:", 0, HEADER_BYTES) >= 0 or data.find(b"PGRADE:", 0, HEADER_BYTES) >= 0
        ):
            data = without_upgrade(data)
        self.body_bytes += len(data)
        super().data_received(data)
        if self.header_bytes is not None:  # after these bytes too: they were all of headers
            self.header_bytes += len(data)
            if self.header_bytes > HEADER_BYTES:
                self._end(431, "Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.message_began()

    def on_headers_complete(self) -> None:
        self.headers_came()
        super().on_headers_complete()
        if self.draining and self.cycle is not None:
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """As uvicorn's, but without a timer a request: the sweep ends what is kept alive for too long"""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self.served = True
            self._await_request()

    def handle_websocket_upgrade(self) -> None:
        self.idle.pop(self, None)
        super().handle_websocket_upgrade()

    def shutdown(self) -> None:
        if not self.draining:
            return super().shutdown()
        self.config.timeout_graceful_shutdown = self.limits.longest
        if self.cycle is not None and not self.cycle.response_started:  # else its headers have promised to keep it
            self.cycle.keep_alive = False

    def pause_writing(self) -> None:
        self.stuck = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self.stuck = None
        super().resume_writing()

    # ------------------------------------------------------------------------------------------ bounds

    def message_began(self) -> None:
        self.began, self.header_bytes = self.loop.time(), 0

    def headers_came(self) -> None:
        self.idle.pop(self, None)
        self.header_bytes, self.began, self.body_bytes = None, self.heard, 0

    def _await_request(self) -> None:
        self.began = self.heard = self.loop.time()
        self.idle[self] = None
        self.idle.move_to_end(self)

    def _make_room(self) -> None:
        oldest = next(iter(self.idle))
        if oldest is self:
            self._end(503, "Service Unavailable", b"retry-after: 1\r\n")
        else:
            oldest._abort()

    def _late(self, now: float) -> bool:
        """Whether it is over a deadline"""
        if self.stopping and (self in self.idle or now > self.stopped):
            return True
        if self.stuck is not None and now - self.stuck > self.limits.body_seconds:
            return True
        if self in self.idle:
            kept, patience = self.served and self.header_bytes is None, self.limits.header_seconds
            return now - self.began > (min(patience, KEEP_ALIVE) if kept or self.draining else patience)
        reading = self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete
        if not reading or self.flow.read_paused:  # it is the app's turn
            return False
        allowed = self.limits.body_seconds + self.body_bytes / SLOWEST
        return now - self.began > allowed or now - self.heard > self.limits.header_seconds

    def _sweep(self) -> None:
        now = self.loop.time()
        if self.stopping:
            BoundedHttp.stopped = min(self.stopped, now + GRACE)
        for each in [each for each in self.connections if isinstance(each, BoundedHttp) and each._late(now)]:
            if each.stuck is not None or (each in each.idle and each.header_bytes is None):
                each._abort()  # nobody listens, or nothing was asked
            else:
                each._end(408, "Request Timeout")
        again = self.connections and not self.loop.is_closed()
        BoundedHttp.sweeping = self.loop.call_later(self.limits.sweep, self._sweep) if again else None

    def _end(self, status: int, reason: str, more: bytes = b"") -> None:
        """A last word, if none was said yet; then the connection is closed"""
        self.idle.pop(self, None)
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            head = b"HTTP/1.1 %d %b\r\ncontent-length: 0\r\nconnection: close\r\n" % (status, reason.encode())
            self.transport.write(head + more + b"\r\n")
        self.transport.close()

    def _abort(self) -> None:
        self.idle.pop(self, None)
        self.transport.abort()
