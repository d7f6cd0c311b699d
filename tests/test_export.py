"""What is exported says what the service says: every algorithm, two classes and more."""

from __future__ import annotations

import json

import numpy as np
import pytest

from clients import Client, HorocycleError
from clients.export import decide, scores
from tests.exporting import KINDS, agree, learned
from tests.running import Running


@pytest.mark.parametrize("kind", KINDS)
def test_numpy_alone_says_what_the_learner_says(kind: str) -> None:
    model, X, expected = learned(kind)
    agree(np.asarray(scores(json.loads(json.dumps(model)), X)), expected, model)


def test_the_model_of_a_session_goes_on_without_it(running: Running) -> None:
    _, X, _ = learned("softmax")
    with Client(running.url) as client:
        session = client.sessions.open(dimension=2, labels=["left", "right"])
        session.observe(X[:400], np.where(X[:400, 0] > 0, "right", "left"))
        document = json.loads(json.dumps(session.model().document))
        assert np.array_equal(decide(document, X), session.predict(X).predictions)
        strategic = client.sessions.open(dimension=2, algorithm="strategic")
        with pytest.raises(HorocycleError, match="agents answer the service"):
            decide(strategic.model().document, X)
