"""Take a session away: as a file for another service, as a NumPy function. python examples/carry_away.py [URL]"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from clients import Client
from clients.export import decide

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
rng = np.random.default_rng(4)
X = rng.uniform(-0.6, 0.6, (2000, 2))
y = np.where(X[:, 0] > 0.5 * X[:, 1], 1, -1)

with Client(URL) as client, tempfile.TemporaryDirectory() as folder:
    session = client.sessions.open(dimension=2)
    session.observe(X, y, columns=False)
    file = session.save(Path(folder) / "session.ndjson")  # of any size: it is written as it comes
    copy = client.sessions.restore(file)
    same = np.array_equal(copy.predict(X[:100]).scores, session.predict(X[:100]).scores)
    alone = np.array_equal(decide(session.model().document, X[:100]), session.predict(X[:100]).predictions)
    print(f"{file.stat().st_size:,} bytes; the copy answers the same: {same}; so does NumPy alone: {alone}")
    assert same and alone
    copy.end()
    session.end()
