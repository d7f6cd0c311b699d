"""A tree, laid into the Poincaré disk: tell its branches apart. python examples/tree.py [URL]"""

import sys

import numpy as np

from clients import Client
from clients.embeddings import to_ball

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
rng = np.random.default_rng(0)
branches = ["bird", "fish", "mammal"]
labels = rng.integers(0, 3, 900)
angle = np.array([0.5, 2.6, 4.7])[labels] + rng.normal(0, 0.35, 900)
depth = rng.uniform(1.5, 5.0, 900)  # a node's distance from the root
X = to_ball(np.tanh(depth / 2)[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]))
y = np.array(branches)[labels]

with Client(URL) as client:
    session = client.sessions.open(dimension=2, labels=branches)
    session.observe(X[:700], y[:700])
    right = (session.predict(X[700:]).predictions == y[700:]).mean()
    print(f"{right:.1%} of 200 held-out nodes, error rate {session.certificate().error_rate}")
    assert right > 0.9
    session.end()
