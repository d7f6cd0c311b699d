"""A real example for every route: the tests run them all, in this order, against the running service."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from service.store.fit_queue import name_of


@dataclass(frozen=True)
class Example:
    status: int = 200
    parameters: dict[str, Any] = field(default_factory=dict)  # of the path, the query and the headers
    body: Any = None


DEMO = {"id": "demo"}
#: The id of the fit that is asked for with the key "third": a fit with a key is named after it
FIT = name_of("third")

EXAMPLES: dict[tuple[str, str], Example] = {
    ("post", "/sessions"): Example(
        201, body={"id": "demo", "algorithm": "perceptron", "dimension": 2, "labels": ["no", "yes"], "name": "A demo"}
    ),
    ("get", "/sessions"): Example(parameters={"limit": 10}),
    ("get", "/sessions/{id}"): Example(parameters=DEMO),
    ("patch", "/sessions/{id}"): Example(parameters=DEMO, body={"name": "A longer demo", "keep_points": 5000}),
    ("post", "/sessions/{id}/observe"): Example(
        parameters={**DEMO, "idempotency-key": "first", "if-match": '"0"', "reply": "columns"},
        body={"points": [[0.1, -0.2], [-0.3, 0.4]], "labels": ["yes", "no"]},
    ),
    ("get", "/sessions/{id}/predict"): Example(parameters={**DEMO, "x": ["0.2,-0.3"]}),
    ("post", "/sessions/{id}/predict"): Example(
        parameters=DEMO, body={"points": [[0.2, -0.3], [0.0, 0.5]], "ids": ["a", "b"]}
    ),
    ("get", "/predict"): Example(parameters={"session": "demo", "x": ["0.2,-0.3"]}),
    ("post", "/sessions/{id}/labels"): Example(
        parameters={**DEMO, "idempotency-key": "second"}, body={"ids": ["a", "b", "c"], "labels": ["yes", "no", "no"]}
    ),
    ("get", "/sessions/{id}/model"): Example(parameters=DEMO),
    ("get", "/sessions/{id}/metrics"): Example(parameters=DEMO),
    ("get", "/sessions/{id}/certificate"): Example(parameters={**DEMO, "margin": "0.1"}),
    ("get", "/sessions/{id}/log"): Example(parameters={**DEMO, "from": 0, "limit": 10}),
    ("get", "/sessions/{id}/at/{position}/model"): Example(parameters={**DEMO, "position": 1}),
    ("get", "/sessions/{id}/events"): Example(parameters={**DEMO, "last-event-id": "0-0"}),
    ("post", "/sessions/{id}/fits"): Example(
        202,
        parameters={**DEMO, "idempotency-key": "third"},
        body={"kind": "svm", "features": "hemisphere", "loss": "squared_hinge", "C": 5.0},
    ),
    ("get", "/sessions/{id}/fits"): Example(parameters=DEMO),
    ("get", "/sessions/{id}/fits/{fit}"): Example(parameters={**DEMO, "fit": FIT}),
    ("post", "/sessions/{id}/promote"): Example(parameters=DEMO, body={"fit": FIT}),
    ("delete", "/sessions/{id}/fits/{fit}"): Example(204, parameters={**DEMO, "fit": FIT}),
    ("get", "/sessions/{id}/snapshot"): Example(parameters=DEMO),
    ("get", "/sessions/{id}/disk.svg"): Example(parameters=DEMO),
    ("get", "/"): Example(),
    ("get", "/sessions/{id}/live"): Example(parameters=DEMO),
    ("get", "/demo"): Example(),
    ("post", "/demo"): Example(201, body={"kind": "agents", "seed": 1}),
    ("get", "/health/live"): Example(),
    ("get", "/health/ready"): Example(),
    ("get", "/metrics"): Example(),
    ("get", "/problems"): Example(),
    ("get", "/problems/{slug}"): Example(parameters={"slug": "point-outside-ball"}),
    ("delete", "/sessions/{id}"): Example(204, parameters=DEMO),
}
