"""Every kind of fit, and points for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from service.batch import svm
from service.batch.classifier import Recipe
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
