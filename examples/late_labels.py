"""Labels that come later: predict with ids, then say what each was. python examples/late_labels.py [URL]"""

import sys

import numpy as np

from clients import Client

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
rng = np.random.default_rng(2)
X = rng.uniform(-0.6, 0.6, (500, 3))
paid = np.where(X[:, 0] + X[:, 1] > 0, "paid", "defaulted")

with Client(URL) as client:
    session = client.sessions.open(dimension=3, labels=["defaulted", "paid"])
    for day in range(5):
        rows = slice(100 * day, 100 * day + 100)
        ids = [f"loan-{i}" for i in range(rows.start, rows.stop)]
        guessed = session.predict(X[rows], ids=ids).predictions  # decided today; nothing is learned yet
        learned = session.label(ids, paid[rows])  # known a month later: each id is learned once
        print(f"day {day}: {(guessed == paid[rows]).mean():.0%} right when decided, {learned.accepted} learned since")
    assert (guessed == paid[rows]).mean() > 0.8
    session.end()
