"""horocycle open: a new session, from the shell."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from clients.client import Client
from clients.commands.options import add_settings, parser, run, settings_of

EXAMPLES = """  horocycle open --dimension 2
  horocycle open cells --dimension 2 --labels T,B,NK --keep-points 100000
  horocycle open --dimension 10 --algorithm second_order --labels false,true
"""


def main(argv: Sequence[str] | None = None) -> int:
    found = parser("open", "Open a session, and print its id.", EXAMPLES)
    found.add_argument("id", nargs="?", help="its id; left out: a random one")
    found.add_argument("--dimension", type=int, required=True)
    found.add_argument("--json", action="store_true", help="print the whole session")
    add_settings(found)
    given = found.parse_args(argv)

    def work(client: Client) -> int:
        settings = settings_of(given)
        settings["id"] = given.id
        session = client.sessions.open(dimension=given.dimension, **settings)
        sys.stdout.write(f"{json.dumps(asdict(session.info)) if given.json else session.id}\n")
        return 0

    return run("open", work, given)
