"""The Lua that runs inside the store, from the files in lua/. Redis does not roll back, so each script checks first.

Reply codes are enums here and named locals there: the text of a script begins with a line made from its enum.
All keys of a session share one hash tag, and every key that a script may touch is among its KEYS, also those that do
not exist yet: a cluster runs it unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha1
from pathlib import Path

LUA = Path(__file__).parent / "lua"
#: An idempotency key is kept this long at least, unless the answers of a session have more bytes than that.
KEY_SECONDS, KEY_BYTES = 600, 64 << 20
#: What a key and its answer take in a hash beside their own bytes.
KEY_OVERHEAD = 100
#: How long the points of a fit may wait before it is opened.
BRING_SECONDS = 600
#: So many blocks without an entry are left alone, and each for so long: their commits may be on the way.
STRAY_BLOCKS, STRAY_SECONDS = 8, 600
#: So many answers or blocks are handled by one command: each costs Lua as much as ten more arguments, but their number
#: is limited.
TOGETHER = 100


class CommitReply(IntEnum):
    """A commit that was made is answered by the number of its entry"""

    REPLAYED = 1  # requests of it were answered before, and nothing was written now
    CONFLICT = 2  # another commit was first
    GONE = 3  # the session has ended
    AMBIGUOUS = 4  # it was sent before, and the log no longer tells whether it was applied
    NO_BLOCK = 5  # a block that its entry refers to is missing
    STOPPED = 6  # the script of an earlier commit was stopped in the middle: repair, and send it again
    DAMAGED = 7  # what is stored contradicts itself


class OpenReply(IntEnum):
    OPENED = 1
    TAKEN = 2  # the id was used before
    NO_BLOCK = 3


class FitReply(IntEnum):
    QUEUED = 1
    ASKED_BEFORE = 2
    KEY_REUSED = 3
    GONE = 4
    TOO_MANY = 5
    POINTS_GONE = 6


@dataclass(frozen=True)
class Script:
    text: str
    digest: str


def script(text: str) -> Script:
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def load(*names: str, replies: type[IntEnum] | None = None, **constants: int) -> Script:
    """The files of these names one after another, behind a line that names the reply codes and constants"""
    named = {**({} if replies is None else replies.__members__), **constants}
    values = ", ".join(str(int(value)) for value in named.values())
    head = f"local {', '.join(named)} = {values}\n" if named else ""
    return script(head + "\n".join((LUA / f"{name}.lua").read_text() for name in names))


COMMIT = load(
    *("log", "commit"),
    replies=CommitReply,
    KEY_SECONDS=KEY_SECONDS,
    KEY_BYTES=KEY_BYTES,
    KEY_OVERHEAD=KEY_OVERHEAD,
    STRAY_BLOCKS=STRAY_BLOCKS,
    STRAY_SECONDS=STRAY_SECONDS,
    TOGETHER=TOGETHER,
)
OPEN = load("open", replies=OpenReply)
LOAD = load("log", "load")
REPAIR = load("log", "repair")
END = load("end")
TOUCH = load("touch")
WAIT = load("wait")
WAITING = load("waiting")
EPOCH = load("epoch")
QUOTA = load("quota")
FIT_BRING = load("fit_bring")
FIT_OPEN = load("log", "fit", "fit_open", replies=FitReply, BRING_SECONDS=BRING_SECONDS)
FIT_CLAIM = load("log", "fit", "fit_claim")
FIT_BEAT = load("log", "fit", "fit_beat")
FIT_SETTLE = load("log", "fit", "fit_settle")
FIT_CANCEL = load("log", "fit", "fit_cancel")
FORK_CLAIM = load("fork_claim")
