"""A session as a scikit-learn classifier: `check_estimator`, `cross_val_score` and `Pipeline` take it.

from clients.sklearn import HorocycleClassifier
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from clients.answers import Array
from clients.calls import Placing, Settings
from clients.client import URL, Client, Session


class HorocycleClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """An online classifier of points in hyperbolic space, learned by a service.

    `fit` opens a session and streams the points `passes` times; `partial_fit` goes on with it. The classifier itself
    stays with the service, as the session `session_id_`; a copy or a pickle of the estimator names the same session.

    Parameters
    ----------
    url : str
        The service.
    algorithm : str
        auto, perceptron, second_order, softmax, gaussian or hyperboloid.
    coordinates : str
        What X holds: poincare (points of the ball), hyperboloid, klein, halfspace, or euclidean (any vectors).
    outside : str
        refuse or clip points beyond the radius limit.
    curvature : float
        The ball's is −c.
    passes : int
        How often `fit` streams the points.
    """

    def __init__(
        self,
        url: str = URL,
        algorithm: str = "auto",
        coordinates: str = "poincare",
        outside: str = "refuse",
        curvature: float = 1.0,
        passes: int = 1,
    ) -> None:
        self.url, self.algorithm, self.coordinates = url, algorithm, coordinates
        self.outside, self.curvature, self.passes = outside, curvature, passes

    def fit(self, X: Any, y: Any) -> HorocycleClassifier:
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        self._open(X, y)
        return self._learn(X, y, self.passes)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> HorocycleClassifier:
        first = not hasattr(self, "session_id_")
        X, y = validate_data(self, X, y, reset=first)
        check_classification_targets(y)
        if first:
            self._open(X, y if classes is None else np.asarray(classes))
        if not (known := np.isin(y, self.classes_)).all():
            raise ValueError(f"{y[~known][0]!r} is not one of the classes {self.classes_.tolist()}")
        return self._learn(X, y, 1)

    def decision_function(self, X: Any) -> Array:
        """Positive for the last of two classes; a column a class if there are more"""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        with Client(self.url) as client:
            return np.array(self._session(client).predict(X, **self._placing()).scores)

    def predict(self, X: Any) -> NDArray[Any]:
        scores = self.decision_function(X)
        return np.asarray(self.classes_[(scores >= 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)])

    def _open(self, X: Any, y: Any) -> None:
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(f"a classifier needs at least two classes; the data has one class, {self.classes_[0]!r}")
        settings: Settings = {
            "labels": list(range(len(self.classes_))),
            "algorithm": self.algorithm,
            "curvature": self.curvature,
        }
        d = X.shape[1] - (self.coordinates == "hyperboloid")
        with Client(self.url) as client:
            if hasattr(self, "session_id_"):
                self._session(client).end()
            self.session_id_ = client.sessions.open(dimension=d, **settings).id

    def _learn(self, X: Any, y: Any, passes: int) -> HorocycleClassifier:
        indices = np.searchsorted(self.classes_, y)
        with Client(self.url) as client:
            session = self._session(client)
            for _ in range(passes):
                session.observe(X, indices, columns=False, **self._placing())
        return self

    def _session(self, client: Client) -> Session:
        return client.sessions.get(self.session_id_)

    def _placing(self) -> Placing:
        return {"coordinates": self.coordinates, "outside": self.outside}
