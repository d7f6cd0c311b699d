"""A session as a `river.base.Classifier`: River's progressive validation, pipelines and metrics take it. Needs river.

from clients.river import HorocycleClassifier
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from river import base

from clients.answers import Label
from clients.calls import Placing
from clients.client import URL, Client, Session


class HorocycleClassifier(base.Classifier):  # type: ignore[misc]
    """An online classifier of points in hyperbolic space, learned by a service.

    The session is opened with the first labelled point, whose coordinates, by name in sorted order, are the dimensions:
    none may come or go. It stays with the service, as `session_id`; a copy or a pickle names the same one.

    Parameters
    ----------
    url
        The service.
    labels
        Two or more, all of one kind. One that is not among them is added when it comes.
    algorithm
        auto, perceptron, second_order, softmax, gaussian or hyperboloid.
    coordinates
        What a point holds: poincare, klein, halfspace, or euclidean (any vector).
    outside
        refuse or clip points beyond the radius limit.
    """

    def __init__(
        self,
        url: str = URL,
        labels: Sequence[Label] = (False, True),
        algorithm: str = "auto",
        coordinates: str = "poincare",
        outside: str = "refuse",
    ) -> None:
        self.url, self.labels, self.algorithm = url, labels, algorithm
        self.coordinates, self.outside = coordinates, outside
        self.session_id: str | None = None
        self._client: Client | None = None
        self._session: Session | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_session": None}

    @property
    def _multiclass(self) -> bool:
        return True

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"coordinates": "euclidean", "outside": "clip"}

    def learn_one(self, x: dict[Hashable, Any], y: Label) -> None:
        session = self._opened(len(x))
        if not any(type(y) is type(label) and y == label for label in session.info.labels):
            session.change(add_labels=[y])
        session.observe([_point(x)], [y], columns=False, **self._placing())

    def predict_proba_one(self, x: dict[Hashable, Any], **kwargs: Any) -> dict[Label, float]:
        """What the model's probabilities are, if it has some; else 1 for the label that it predicts"""
        if self.session_id is None:
            return {}
        session = self._opened(len(x))
        found = session.predict([_point(x)], **self._placing())
        if found.probabilities is not None:
            return dict(zip(session.info.labels, found.probabilities[0].tolist(), strict=True))
        [chosen] = found.predictions.tolist()
        return {label: float(label == chosen) for label in session.info.labels}

    def _opened(self, d: int) -> Session:
        """The session, opened or found again; the connection is not part of a copy"""
        if self._session is None:
            self._client = self._client or Client(self.url)
            if self.session_id is None:
                sessions, labels = self._client.sessions, list(self.labels)
                self._session = sessions.open(dimension=d, labels=labels, algorithm=self.algorithm)
                self.session_id = self._session.id
            else:
                self._session = self._client.sessions.get(self.session_id)
        return self._session

    def _placing(self) -> Placing:
        return {"coordinates": self.coordinates, "outside": self.outside}


def _point(x: dict[Hashable, Any]) -> list[float]:
    return [float(x[name]) for name in sorted(x, key=str)]
