"""The same stream, learned by others: forks replay the log on the server. python examples/which_learner.py [URL]"""

import sys

import numpy as np

from clients import Client

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
rng = np.random.default_rng(1)
X = rng.uniform(-0.6, 0.6, (3000, 2))
y = np.where(
    np.linalg.norm(X - [0.2, 0.1], axis=1) < 0.4, 1, -1
)  # a circle: no hyperplane through the origin cuts it out

with Client(URL) as client:
    session = client.sessions.open(dimension=2)
    session.observe(X, y, columns=False)
    found = {"auto": session.metrics().accuracy}
    for settings in ({"algorithm": "second_order"}, {"algorithm": "softmax"}, {"algorithm": "gaussian"}):
        fork = client.sessions.fork(session, **settings)
        fork.wait(timeout=300)
        found[settings["algorithm"]] = fork.metrics().accuracy
        fork.end()
    for name, accuracy in sorted(found.items(), key=lambda each: -each[1]):
        print(f"{name:13} {accuracy:.1%}")
    assert found["auto"] > max(found.values()) - 0.05
    session.end()
