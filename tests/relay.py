"""A server of the test's own between a client and the service, in a thread with its own event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextmanager
def relay(serve: Serve, port: int = 0) -> Iterator[str]:
    """Its address; `serve` is called for every connection, and closes those that it makes itself"""
    loop, clients = asyncio.new_event_loop(), set[asyncio.StreamWriter]()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clients.add(writer)
        try:
            await serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):  # a client that has left
            writer.close()

    async def end() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in clients:
            writer.transport.abort()
        await asyncio.sleep(0.01)  # they are closed by then

    server = loop.run_until_complete(asyncio.start_server(accept, "127.0.0.1", port))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(end())
        loop.close()
