"""horocycle fit: a batch classifier for a session's points or for a file, waited for, and promoted if asked."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from clients.calls import Recipe
from clients.client import Client
from clients.commands.options import parser, run
from clients.files import Choice, read

EXAMPLES = """  horocycle fit demo                              an SVM for the points that the session keeps
  horocycle fit demo --kind softmax --promote     and go on learning from it
  horocycle fit demo --file cells.npz             for a file of its own
  horocycle fit demo --data '/srv/points/*.npy'   for files that the service reads itself
  horocycle fit --data points.npy --workers 2     without a service, for files of any size: fit --data X --help
"""


def main(argv: Sequence[str] | None = None) -> int:
    found = parser("fit", "Fit a batch classifier, wait for it, and print what it came to.", EXAMPLES)
    found.add_argument("session")
    found.add_argument("--data", help="fit these files: a path or URL as the service sees it; for administrators")
    found.add_argument("--file", help="fit these points, not the retained ones")
    found.add_argument("--label", help="the column that holds the label")
    found.add_argument("--kind", choices=("svm", "softmax"))
    found.add_argument("--margin", choices=("soft", "hard"))
    found.add_argument("--loss", choices=("hinge", "squared_hinge"))
    found.add_argument("--features")
    found.add_argument("--reference", help="session, hull, closest, lorentz, cv, …")
    found.add_argument("-C", type=float)
    found.add_argument("--promote", action="store_true", help="start the online learner from it")
    given = found.parse_args(argv)
    return run("fit", lambda client: _fit(client, given), given)


def _fit(client: Client, given: argparse.Namespace) -> int:
    session = client.sessions.get(given.session)
    names = ("kind", "margin", "loss", "features", "reference", "C", "data")
    asked: Any = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    recipe: Recipe = asked
    if given.file is None:
        fit = session.fit(**recipe)
    else:
        table = read(given.file, Choice(label=given.label))
        fit = session.fit(table.X, table.y, **recipe)
    result = fit.wait()
    out = sys.stdout.write
    out(f"fit {fit.id}: training accuracy {result.training_accuracy:.4f}")
    out(f", duality gap {result.certificate.gap:.1e}, {result.seconds:.2f} s\n")
    if given.promote:
        out(f"promoted: version {session.promote(fit).version} of the classifier of {session.id}\n")
    return 0
