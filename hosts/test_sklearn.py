"""scikit-learn's own checks, and its tools."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from clients.sklearn import HorocycleClassifier
from tests.running import Running

#: Checks that are expected to fail, each with its reason. None: all pass.
EXPECTED: dict[str, str] = {}


@pytest.mark.filterwarnings("ignore")  # scikit-learn warns about what it checks
def test_scikit_learn_takes_it_for_one_of_its_own(running: Running) -> None:
    model = HorocycleClassifier(url=running.url, coordinates="euclidean", outside="clip")
    found = check_estimator(model, on_fail=None, on_skip=None, expected_failed_checks=EXPECTED)
    failed = {each["check_name"]: repr(each["exception"]) for each in found if each["status"] == "failed"}
    assert len(found) > 40 and failed == {}


def test_it_works_in_a_pipeline_and_in_cross_validation(running: Running) -> None:
    X, y = make_blobs(n_samples=300, centers=3, random_state=0)
    model = HorocycleClassifier(url=running.url, coordinates="euclidean", passes=2)
    scores = cross_val_score(make_pipeline(StandardScaler(), model), X, y, cv=3)
    assert scores.mean() > 0.85
    assert not hasattr(clone(model), "session_id_")
    with pytest.raises(ValueError, match="two classes"):
        model.fit(X, np.zeros(300))
