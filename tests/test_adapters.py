"""The adapters do what River's and scikit-learn's users expect of a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from clients import problems
from clients.adapters import RiverClassifier, SklearnClassifier
from clients.client import Client
from tests.running import Running


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    with Client(running.url) as found:
        yield found


def stream(n: int = 300) -> tuple[Any, Any]:
    X = np.random.default_rng(0).uniform(-0.6, 0.6, (n, 2))
    return X, X[:, 0] > 0.3 * X[:, 1]


def test_rivers_way_is_a_stream_of_single_points(client: Client) -> None:
    X, positive = stream(40)
    plain = client.sessions.open(dimension=2, reference="origin", labels=["no", "yes"])
    labels = np.where(positive, "yes", "no").tolist()
    expected = plain.observe(X, labels)
    model = RiverClassifier(client.sessions.open(dimension=2, reference="origin", labels=["no", "yes"]))
    guesses = []
    for (a, b), label in zip(X.tolist(), labels, strict=True):
        guesses.append(model.predict_one({"a": a, "b": b}))
        model.learn_one({"b": b, "a": a}, label)
    assert expected.predictions is not None
    assert guesses == expected.predictions.tolist()
    assert np.array_equal(model.session.model().weights, plain.model().weights)
    assert model.predict_one([0.5, 0.0]) == model.predict_one({"a": 0.5, "b": 0.0}) == "yes"
    with pytest.raises(ValueError, match="coordinates"):
        model.predict_one({"a": 0.5, "c": 0.0})


def test_the_order_of_named_coordinates_can_be_given(client: Client) -> None:
    session = client.sessions.open(dimension=2, reference="origin")
    model = RiverClassifier(session, features=["b", "a"])
    model.learn_one({"a": 0.2, "b": 0.5}, -1)
    assert np.sign(session.model().weights).tolist() == [-1, -1]
    assert session.model().weights[0] < session.model().weights[1]


@pytest.mark.parametrize("classes", [["no", "yes"], [0, 1], [-1.0, 1.0], [False, True]])
def test_scikit_learns_way_takes_any_classes(client: Client, classes: list[Any]) -> None:
    X, positive = stream()
    y = np.array(classes)[positive.astype(int)]
    model = SklearnClassifier(client, algorithm="second_order")
    for i in range(0, 300, 50):
        assert model.partial_fit(X[i : i + 50], y[i : i + 50], classes=classes) is model
    assert model.classes_.tolist() == classes
    assert model.predict(X).dtype == y.dtype
    assert model.score(X, y) == np.mean(model.predict(X) == y) > 0.9
    assert np.array_equal(model.decision_function(X) >= 0, model.predict(X) == classes[1])
    assert model.session_.refresh().observed == 300
    with pytest.raises(ValueError, match="not one of the classes"):
        model.partial_fit(X[:1], ["other"] if classes[0] == "no" else [7])


def test_three_classes_have_a_column_each(client: Client) -> None:
    X, _ = stream()
    y = np.digitize(X[:, 0], [-0.2, 0.2])
    model = SklearnClassifier(client).partial_fit(X, y)
    assert model.decision_function(X).shape == (300, 3)
    assert np.array_equal(model.predict(X), model.decision_function(X).argmax(axis=1))


def test_one_class_alone_is_the_services_to_refuse(client: Client) -> None:
    X, _ = stream()
    with pytest.raises(problems.InvalidRequest):
        SklearnClassifier(client).partial_fit(X, np.ones(300))
