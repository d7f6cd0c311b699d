"""River's own checks, and its progressive validation."""

from __future__ import annotations

import pytest
from river import base, checks, evaluate, metrics, preprocessing
from river.datasets import Phishing

from clients.river import HorocycleClassifier
from tests.running import Running

#: Left out: a session has a fixed dimension, so no feature may come or go.
LEFT_OUT = ("check_emerging_features", "check_disappearing_features", "check_radically_disappearing_features")
#: Left out: it measures this process, and the memory of the model is the service's.
LEFT_OUT += ("check_bounded_memory_growth",)


@pytest.mark.filterwarnings("ignore")
def test_river_takes_it_for_one_of_its_own(running: Running) -> None:
    model = HorocycleClassifier(url=running.url, coordinates="euclidean", outside="clip")
    assert isinstance(model, base.Classifier)
    ran = 0
    for check in checks.yield_checks(model):
        if check.__name__ not in LEFT_OUT:
            check(model.clone())
            ran += 1
    assert ran > 20


def test_progressive_validation(running: Running) -> None:
    model = HorocycleClassifier(url=running.url, coordinates="euclidean")
    scaled = preprocessing.StandardScaler() | model
    assert evaluate.progressive_val_score(Phishing().take(400), scaled, metrics.Accuracy()).get() > 0.75
