"""The populations of the page's demos."""

from __future__ import annotations

import numpy as np

from service import geometry as g
from service.sessions.demo import POPULATIONS


def test_the_true_points_of_the_agents_have_the_margin_that_is_said() -> None:
    """|σ_p⟨w, log_p(x)⟩| > margin for w of the border that they were drawn about, whatever the classifier"""
    agents, p, w = POPULATIONS["agents"], np.array(POPULATIONS["agents"].settings["reference"]), np.array([0.8, 0.6])
    model = {"reference": p.tolist(), "weights": [1.0, -2.0], "threshold": 0.4}
    batch = agents.draw(np.random.default_rng(0), 0, 20_000, model)
    assert batch.truth is not None and agents.margin is not None
    side = g.conformal_factor(p) * (g.log_map(p, batch.truth) @ w)
    assert ((side > 0) == (batch.indices == 1)).all()
    assert agents.margin < np.abs(side).min() < 1.3 * agents.margin
