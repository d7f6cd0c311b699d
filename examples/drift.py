"""A stream that changes: two classes change places, and the session begins anew. python examples/drift.py [URL]"""

import sys

import numpy as np

from clients import Client

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
rng = np.random.default_rng(3)
X = rng.uniform(-0.6, 0.6, (6000, 2))
y = np.where(X[:, 0] > 0.5 * X[:, 1], 1, -1)
y[3000:] *= -1  # from here on the labels mean the opposite

with Client(URL) as client:
    for on_drift in ("alarm", "restart"):
        session = client.sessions.open(dimension=2, algorithm="second_order", drift={"on_drift": on_drift})
        correct = np.concatenate([part.correct for part in session.stream(X, y, batch=500)])
        print(f"{on_drift}: {correct[:3000].mean():.1%} before the change, {correct[3500:].mean():.1%} after it")
        session.end()
    assert correct[3500:].mean() > 0.8
