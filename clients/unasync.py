"""python clients/unasync.py: write sync_client.py from async_client.py, so that every method is written once.

`async` and `await` go, and a few names become their blocking counterparts: that is all the two differ in. A test
compares the file with what this would write.
"""

from __future__ import annotations

import re
from pathlib import Path

SOURCE = Path(__file__).with_name("async_client.py")
TARGET = Path(__file__).with_name("sync_client.py")
NOTICE = """\
# Written by `python clients/unasync.py` from async_client.py: edit that one.
# ruff: noqa: I001
# fmt: off
"""
WORDS = {
    **{f"Async{name}": name for name in ("Client", "Sessions", "Session", "Stream", "Fit")},
    **{f"Async{name}": name for name in ("Iterator", "Generator", "Sleeper")},
    **{"__aenter__": "__enter__", "__aexit__": "__exit__"},
    **{"aclose": "close", "aread": "read", "aiter_bytes": "iter_bytes"},  # httpx
    **{"asyncio": "time", "alabelled": "labelled", "aconnect": "connect", "ashown": "shown"},
}


def synchronous(source: str) -> str:
    """The same code without `async` and `await`"""
    source = re.sub(r"\b(async|await) ", "", source)
    return NOTICE + re.sub(r"\w+", lambda word: WORDS.get(word[0], word[0]), source)


if __name__ == "__main__":
    TARGET.write_text(synchronous(SOURCE.read_text(encoding="utf-8")), encoding="utf-8")
