"""Every kind of fit, and points for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from service.batch import svm
from service.batch.classifier import Recipe
from service.batch.passes import Chunk, Seen
from service.geometry import Array

REFERENCE = [[0.1, -0.05, 0.02]]
RECIPES = {
    "hinge": Recipe(reference=REFERENCE),
    "hinge, lift": Recipe(reference=REFERENCE, features="lift"),
    "hinge, hyperboloid": Recipe(features="hyperboloid"),
    "squared hinge": Recipe(reference=REFERENCE, loss="squared_hinge"),
    "squared hinge, hemisphere": Recipe(features="hemisphere", loss="squared_hinge"),
    "hard": Recipe(reference=REFERENCE, margin="hard"),
    "softmax": Recipe(kind="softmax", features="hemisphere"),
    "softmax, hyperboloid": Recipe(kind="softmax", features="hyperboloid"),
}


def data(kind: str, n: int, K: int = 2, seed: int = 0) -> tuple[Array, Any]:
    """Points of 3 dimensions; separable through the reference point for a hard margin"""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    X *= (np.tanh(rng.random(n) * 1.5) / np.linalg.norm(X, axis=1))[:, None]
    if kind == "hard":
        return X, (svm.features(X, REFERENCE[0]) @ [1.0, 2.0, -1.0] > 0).astype(np.int64)
    score = X @ [1.0, 2.0, -1.0] + 0.3 * rng.normal(size=n)
    return X, np.digitize(score, np.quantile(score, np.arange(1, K) / K)).astype(np.int64)


@dataclass(frozen=True)
class Slow:
    """A partition of a thousand chunks, for twenty seconds; its file has a byte for each that was read"""

    file: Path
    start: int = 0
    stop: int = 1000

    def chunks(self, rows: int) -> Iterator[Chunk]:
        for at in range(self.start, self.stop):
            with self.file.open("ab") as file:
                file.write(b".")
            time.sleep(0.02)
            yield Chunk(np.zeros((1, 1)), np.ones(1), np.ones(1), np.zeros(1), np.array([at]), at)

    def read(self) -> int:
        return self.file.stat().st_size if self.file.exists() else 0


def count(chunk: Chunk, asked: None) -> Seen:
    """A visit that counts rows"""
    return Seen((np.array([len(chunk)]),))
