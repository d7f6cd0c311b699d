"""horocycle serve | restart | stream | consume | fit | open | watch | simulate | doctor: which program each is."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence

from horocycle import doctor

#: command → the module whose `main` it is, and what it does
COMMANDS = {
    "serve": ("service", "run the service"),
    "restart": ("service.process.cli", "replace the workers of a running service, without a failed request"),
    "stream": ("clients.commands.stream", "send a file (csv, parquet, jsonl, npy, npz) or stdin to a session"),
    "consume": ("service.process.consume", "feed sessions from Redis Streams, every entry exactly once"),
    "fit": ("clients.commands.fit", "fit a batch classifier, and promote it"),
    "open": ("clients.commands.open", "open a session"),
    "watch": ("clients.commands.watch", "watch a session live"),
    "simulate": ("clients.simulate", "agents that try to cheat the classifier"),
    "doctor": ("horocycle.doctor", "say what is wrong with this environment, and how to mend it"),
}
HELP = f"""usage: horocycle COMMAND …

{chr(10).join(f"  {name:<9} {help}" for name, (_, help) in COMMANDS.items())}

horocycle COMMAND --help says more. For example, in two terminals:

  horocycle serve
  horocycle stream embedding.npz --shuffle --holdout 0.2
"""
#: What each part needs, by the name it is imported as. `pyproject.toml` has the versions.
NEEDS = {
    "service": ("fastapi", "numba", "redis", "uvicorn", "pydantic", "scipy"),
    "clients": ("httpx", "numpy", "orjson", "rich"),
}
REMEDY = {"service": "pip install 'horocycle[serve]'", "clients": "pip install horocycle"}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        sys.stdout.write(HELP)
        return 0 if arguments else 2
    command, *rest = arguments
    if command not in COMMANDS:
        sys.stderr.write(f"horocycle: there is no command {command!r}; known are {', '.join(COMMANDS)}\n")
        return 2
    module = COMMANDS[command][0]
    if command == "fit" and rest and rest[0].startswith("-") and any(each.startswith("--data") for each in rest):
        module = "service.fits.command"  # no session: the files are fitted here
    if missing := lacking(module.partition(".")[0]):
        sys.stderr.write(f"horocycle {command}: {', '.join(missing)} is not installed; {_remedy(module)}\n")
        return 1
    if command == "serve":  # a process that forks workers begins as itself
        os.execv(sys.executable, [sys.executable, "-m", "service", "serve", *rest])
    if command == "doctor":
        return doctor.main(rest)
    if command == "restart":
        rest = [command, *rest]
    return int(importlib.import_module(module).main(rest))


def lacking(part: str) -> list[str]:
    """What of a part's packages is not installed"""
    return [name for name in NEEDS.get(part, ()) if importlib.util.find_spec(name) is None]


def _remedy(module: str) -> str:
    return REMEDY[module.partition(".")[0]]
