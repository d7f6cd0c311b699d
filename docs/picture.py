"""Draws docs/disk.svg, the README's picture: `python -m docs.picture`. A real stream, a real learner."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from service import geometry as g
from service.learners import perceptron

SIZE, BLUE, ORANGE, INK = 210, "#0072b2", "#d55e00", "#1b1f24"


def main() -> None:
    rng = np.random.default_rng(12)
    p, w = np.array([0.32, 0.18]), np.array([0.35, 1.0])
    angles, radii = rng.uniform(0, 2 * np.pi, 420), rng.uniform(0.2, 4.2, 420)
    X = np.tanh(radii / 2)[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    side = g.signed_distance(p, w, X)
    X, y = X[np.abs(side) > 0.12], np.sign(side[np.abs(side) > 0.12])
    state = perceptron.observe(perceptron.init(p), np.tile(X, (4, 1)), np.tile(y, 4)).state

    across = np.array([-state.w[1], state.w[0]]) / np.linalg.norm(state.w)
    boundary = g.exp_map(p, np.linspace(-8, 8, 161)[:, None] * across / g.conformal_factor(p))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-SIZE} {-SIZE} {2 * SIZE} {2 * SIZE}" width="420">',
        "<title>Points of two classes in the Poincaré disk and the geodesic a perceptron learned between them</title>",
        f'<circle r="200" fill="#fbfcfd" stroke="{INK}" stroke-width="1.5"/>',
        f'<path d="M{path(boundary)}" fill="none" stroke="{INK}" stroke-width="2.5" stroke-linecap="round"/>',
    ]
    for point, label in zip(X, y, strict=True):
        a, b = place(point)
        size = 1.2 + 4.2 * (1 - point @ point)
        if label > 0:
            parts.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{size:.1f}" fill="{BLUE}" fill-opacity=".75"/>')
        else:
            corners = f"{a:.1f},{b - 1.25 * size:.1f} {a - size:.1f},{b + size:.1f} {a + size:.1f},{b + size:.1f}"
            parts.append(f'<polygon points="{corners}" fill="{ORANGE}" fill-opacity=".75"/>')
    a, b = place(p)
    parts.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="5" fill="#fff" stroke="{INK}" stroke-width="2"/>')
    Path(__file__).with_name("disk.svg").write_text("\n".join([*parts, "</svg>\n"]))


def place(x: g.Array) -> tuple[float, float]:
    return 200 * float(x[0]), -200 * float(x[1])


def path(line: g.Array) -> str:
    return "L".join(f"{a:.1f} {b:.1f}" for a, b in map(place, line))


if __name__ == "__main__":
    main()
