"""Draws docs/disk.svg, a picture as a session has it: `python -m docs.picture`. A real stream, a real learner."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from service import geometry as g
from service.learners import perceptron
from service.sessions.picture import disk

FILE = Path(__file__).with_name("disk.svg")


def picture() -> str:
    rng = np.random.default_rng(12)
    p, w = np.array([0.32, 0.18]), np.array([0.35, 1.0])
    angles, radii = rng.uniform(0, 2 * np.pi, 420), rng.uniform(0.2, 4.2, 420)
    X = np.tanh(radii / 2)[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    side = g.signed_distance(p, w, X)
    far = np.abs(side) > 0.12
    X, indices = X[far], (side[far] > 0).astype(np.int64)
    state = perceptron.observe(perceptron.init(p), X, 2 * indices - 1).state
    return disk(
        algorithm="perceptron",
        curvature=1.0,
        labels=["plant", "animal"],
        references=[p.tolist()],
        weights=state.w,
        threshold=None,
        X=X,
        indices=indices,
        counts={"observed": len(X), "mistakes": state.k, "updates": state.k, "status": "live"},
        title="A stream",
    )


if __name__ == "__main__":
    FILE.write_text(picture())
