"""python -m clients.demo: a service, a stream, and how the mistakes die out. `make demo` runs it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from typing import Any

import httpx
import numpy as np

BATCH, BATCHES = 250, 12


def main() -> int:
    with tempfile.TemporaryDirectory() as data:
        command = [sys.executable, "-m", "service", "serve", "--port", "0", "--data", f"{data}/store"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                banner = server.stdout.readline().split()
                if len(banner) < 3:
                    return 1  # it has said why
                with httpx.Client(base_url=banner[2], transport=httpx.HTTPTransport(retries=10)) as http:
                    stream(http)
            except KeyboardInterrupt:
                pass
            finally:
                server.terminate()
    return 0


def stream(http: httpx.Client) -> None:
    """Points uniform in the disk, labelled by a geodesic that the learner does not know"""
    rng = np.random.default_rng(0)
    show("POST /sessions", session := told(http.post("/sessions", json={"algorithm": "second_order", "dimension": 2})))
    where = f"/sessions/{session['id']}"
    for _ in range(BATCHES):
        angle, radius = rng.uniform(0, 2 * np.pi, BATCH), 0.95 * np.sqrt(rng.uniform(size=BATCH))
        X = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        y = np.where(X @ [0.6, -0.8] >= 0, 1, -1)
        answer = told(http.post(f"{where}/observe", json={"points": X.tolist(), "labels": y.tolist()}))
        now, wrong = answer["session"], answer["mistakes"]
        sys.stdout.write(f"  {now['observed']:5} points  {wrong:3} mistakes  {'▇' * wrong}\n")
    show(f"GET {where}/model", told(http.get(f"{where}/model")))
    show(f"GET {where}/predict?x=0.3,-0.4", told(http.get(f"{where}/predict", params={"x": "0.3,-0.4"})))


def told(answer: httpx.Response) -> dict[str, Any]:
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def show(what: str, answer: dict[str, Any]) -> None:
    brief = {name: answer[name] for name in answer if name in ("id", "weights", "version", "predictions", "scores")}
    sys.stdout.write(f"{what}\n  {brief}\n")


if __name__ == "__main__":
    sys.exit(main())
