"""A session as a `river.base.Classifier`: River's progressive validation, pipelines and metrics take it. Needs river.

from clients.river import HorocycleClassifier
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from river import base

from clients.answers import Label
from clients.arrays import plain
from clients.calls import Placing
from clients.client import URL, Client, Session


class HorocycleClassifier(base.Classifier):
    """An online classifier of points in hyperbolic space, learned by a service.

    The coordinates of the first point, by name in sorted order, are the dimensions: none may come or go. The session is
    opened when two labels are known; points that come before wait for that. It stays with the service, as
    `session_id`; a copy or a pickle names the same one.

    Parameters
    ----------
    url
        The service.
    labels
        Those that are known; two or more, or none. One that is not among them is added when it comes.
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
        labels: Sequence[Label] | None = None,
        algorithm: str = "auto",
        coordinates: str = "poincare",
        outside: str = "refuse",
    ) -> None:
        self.url, self.labels, self.algorithm = url, labels, algorithm
        self.coordinates, self.outside = coordinates, outside
        self.session_id: str | None = None
        self._waiting: list[tuple[list[float], Label]] = []
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
        self._waiting.append((_point(x), plain(y)))
        labels = list(self.labels or ()) or list(dict.fromkeys(label for _, label in self._waiting))
        if self.session_id is None and len(labels) < 2:
            return
        session = self._opened(len(x), labels)
        points, given = zip(*self._waiting, strict=True)
        if unknown := [label for label in dict.fromkeys(given) if label not in session.info.labels]:
            session.change(add_labels=unknown)
        session.observe(points, given, columns=False, **self._placing())
        self._waiting = []

    def predict_proba_one(self, x: dict[Hashable, Any], **kwargs: Any) -> dict[Label, float]:
        """What the model's probabilities are, if it has some; else 1 for the label that it predicts"""
        if self.session_id is None:
            return {label: 1.0 for _, label in self._waiting[:1]}
        session = self._opened(len(x), [])
        found = session.predict([_point(x)], **self._placing())
        if found.probabilities is not None:
            return dict(zip(session.info.labels, found.probabilities[0].tolist(), strict=True))
        [chosen] = found.predictions.tolist()
        return {label: float(label == chosen) for label in session.info.labels}

    def _opened(self, d: int, labels: list[Label]) -> Session:
        """The session, opened or found again; the connection is not part of a copy"""
        if self._session is None:
            if self._client is None:
                self._client = Client(self.url)
                weakref.finalize(self, self._client.close)  # River's models are not closed, but forgotten
            if self.session_id is None:
                self._session = self._client.sessions.open(dimension=d, labels=labels, algorithm=self.algorithm)
                self.session_id = self._session.id
            else:
                self._session = self._client.sessions.get(self.session_id)
        return self._session

    def _placing(self) -> Placing:
        return {"coordinates": self.coordinates, "outside": self.outside}


def _point(x: dict[Hashable, Any]) -> list[float]:
    return [float(x[name]) for name in sorted(x, key=str)]
