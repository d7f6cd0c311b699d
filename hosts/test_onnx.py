"""What is exported, run by onnxruntime."""

from __future__ import annotations

import json

import numpy as np
import onnxruntime
import pytest

from clients.export import to_onnx
from tests.exporting import KINDS, agree, learned


@pytest.mark.parametrize("kind", KINDS)
def test_onnxruntime_says_what_the_learner_says(kind: str) -> None:
    model, X, expected = learned(kind)
    session = onnxruntime.InferenceSession(to_onnx(model), providers=["CPUExecutionProvider"])
    scores, index = session.run(None, {"points": X})
    agree(scores, expected, model)
    decided = (scores >= 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
    assert np.array_equal(index, decided)
    assert json.loads(session.get_modelmeta().custom_metadata_map["labels"]) == model["labels"]
