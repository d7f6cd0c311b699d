"""A session as the models that River and scikit-learn know. Neither is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clients.answers import Array, Label
from clients.client import Client, Session


class RiverClassifier:
    """River's way: `learn_one`, `predict_one`. A point is a sequence, or a dict of named coordinates, whose order is
    that of the first dict that comes."""

    def __init__(self, session: Session, features: Sequence[Any] | None = None) -> None:
        self.session = session
        self.features = None if features is None else tuple(features)

    def learn_one(self, x: Mapping[Any, float] | Sequence[float], y: Label) -> None:
        self.session.observe(self._point(x), y, columns=False)

    def predict_one(self, x: Mapping[Any, float] | Sequence[float]) -> Label:
        label: Label = self.session.predict(self._point(x)).predictions.tolist()[0]
        return label

    def _point(self, x: Mapping[Any, float] | Sequence[float]) -> list[float]:
        if not isinstance(x, Mapping):
            return list(x)
        if self.features is None:
            self.features = tuple(x)
        if x.keys() != set(self.features):
            raise ValueError(f"this point has the coordinates {sorted(map(str, x))}, not {list(self.features)}")
        return [x[name] for name in self.features]


class SklearnClassifier:
    """scikit-learn's way: `partial_fit`, `predict`, `decision_function`, `score`. The first `partial_fit` opens the
    session, `session_`, with these settings; it must know all classes, from `classes` or from y. They may be of any
    type that NumPy sorts."""

    def __init__(self, client: Client, **settings: Any) -> None:
        self.client, self.settings = client, settings

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> SklearnClassifier:
        X, y = np.asarray(X), np.asarray(y)
        if not hasattr(self, "session_"):
            self.classes_ = np.unique(y if classes is None else np.asarray(classes))
            labels = list(range(len(self.classes_)))
            self.session_ = self.client.sessions.open(dimension=X.shape[1], labels=labels, **self.settings)
        known = np.isin(y, self.classes_)
        if not known.all():
            raise ValueError(f"{y[~known][0]!r} is not one of the classes {self.classes_.tolist()}")
        self.session_.observe(X, np.searchsorted(self.classes_, y), columns=False)
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        return np.asarray(self.classes_[self.session_.predict(np.asarray(X)).predictions])

    def decision_function(self, X: ArrayLike) -> Array:
        """Signed distance to the boundary, positive for the last class; a column a class if there are more than two"""
        return self.session_.predict(np.asarray(X)).scores

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        return float(np.mean(self.predict(X) == np.asarray(y)))
