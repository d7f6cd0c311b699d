"""Whether Numba's cache holds every loop: then a loop may wait for its first call, which loads it and compiles nothing.

Numba itself tells only by loading a loop. Beside its files a note is kept of what they were compiled from, by and for:
more than Numba asks of them. Where any of it differs, or a file has gone, all are compiled or loaded at import, as at
the very first one, and noted again.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from llvmlite import binding

SOURCES = Path(__file__).parent
NOTE = "horocycle-loops.json"


def circumstances() -> dict[str, Any]:
    """The sources' sizes and times, this Python, Numba and processor, and Numba's settings"""
    sources = {path.name: path.stat() for path in sorted(SOURCES.glob("*.py"))}
    host = [binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()]
    return {
        "sources": {name: [found.st_mtime_ns, found.st_size] for name, found in sources.items()},
        "versions": [sys.version, version("numba"), version("llvmlite")],
        "processor": [binding.get_process_triple(), *([] if os.environ.get("NUMBA_CPU_NAME") == "generic" else host)],
        "settings": {name: value for name, value in sorted(os.environ.items()) if name.startswith("NUMBA_")},
    }


def is_complete(folder: Path) -> bool:
    """Whether the cache in this folder was noted to be, in these circumstances, and has all of its files still"""
    try:
        noted = json.loads((folder / NOTE).read_bytes())
        return bool(noted["of"] == circumstances() and {*noted["files"]} <= {*os.listdir(folder)})
    except (OSError, ValueError, KeyError, TypeError):
        return False


def note(folder: Path) -> None:
    """That it is; called when every loop is compiled"""
    files = sorted(path.name for path in folder.glob("*.nb[ic]"))
    new = folder / f"{NOTE}.{os.getpid()}"
    with suppress(OSError):  # the next import tries again
        new.write_text(json.dumps({"of": circumstances(), "files": files}))
        new.replace(folder / NOTE)
