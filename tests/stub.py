"""A stand-in for the service, on a real socket: for answers that the service gives only when something goes wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: A session as the service shows it.
INFO: dict[str, Any] = {
    **{"id": "s", "name": None, "algorithm": "perceptron", "dimension": 2, "curvature": 1.0, "reference": [0.0, 0.0]},
    **{"labels": [-1, 1], "a": None, "budget": None, "keep_points": 10_000, "ttl_seconds": None, "created_at": "now"},
    **{"observed": 0, "mistakes": 0, "updates": 0, "version": 0, "status": "live"},
}


class Stub(BaseHTTPRequestHandler):
    """Subclasses have a do_GET, do_POST, … that end with `answer` or `refuse`."""

    def body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["content-length"])) or b"null")

    def answer(
        self,
        content: Any,
        headers: Mapping[str, str] | None = None,
        *,
        status: int = 200,
        kind: str = "application/json",
    ) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status: int, slug: str, **members: Any) -> None:
        problem = {"type": f"/problems/{slug}", "title": slug, "status": status, **members}
        self.answer(problem, status=status, kind="application/problem+json")

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(handler: type[Stub]) -> Iterator[str]:
    """Its address, while the block runs"""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
