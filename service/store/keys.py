"""The keys in Redis, a function each. Those of a session share the hash tag {id}, so one script may touch them all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

#: The number in every key's prefix.
FORMAT = 2


def _key(sid: str, what: str) -> str:
    return f"hc:2:{{{sid}}}:{what}"


def born_key(sid: str) -> str:
    """Set when the id is first used, and never removed: an id is not given away twice"""
    return _key(sid, "born")


def state_key(sid: str) -> str:
    """Hash: the session as it is now. codec.py has its fields"""
    return _key(sid, "state")


def log_key(sid: str) -> str:
    """Stream: one entry a commit, with the id <observed>-<number>. codec.py has its fields"""
    return _key(sid, "log")


def spare_key(sid: str) -> str:
    """Where a log is written anew, if a script was ever stopped in the middle (lua/repair.lua)"""
    return _key(sid, "spare")


def answers_key(sid: str, generation: int) -> str:
    """Hash: idempotency key → number of the log entry, a space, the answer. Two generations take turns"""
    return _key(sid, f"answers:{generation}")


def blocks_key(sid: str) -> str:
    """Hash: name → the large parts of a log entry, which are sent before the commit that refers to them"""
    return _key(sid, "blocks")


def block_order_key(sid: str) -> str:
    """List of "position name" of the blocks that entries refer to, oldest first"""
    return _key(sid, "block_order")


def ids_key(sid: str) -> str:
    """Hash: id → a point that waits for its label, or what became of it (lua/wait.lua)"""
    return _key(sid, "ids")


def waiting_key(sid: str) -> str:
    """Sorted set of the ids that wait, by when they expire"""
    return _key(sid, "waiting")


def settled_key(sid: str) -> str:
    """Sorted set of the ids that were learned or expired, by when"""
    return _key(sid, "settled")


def fits_key(sid: str) -> str:
    """Hash: "fit:field" → what is known of a fit; "order" → their ids, oldest first"""
    return _key(sid, "fits")


def fit_models_key(sid: str) -> str:
    """Hash: fit → the classifier it came to"""
    return _key(sid, "fit_models")


def fit_points_key(sid: str) -> str:
    """Hash: "name:number" → a piece of the points of a fit, until it ends; name → since when they wait for one"""
    return _key(sid, "fit_points")


def fit_queue_key() -> str:
    """Sorted set of "session fit" by when to look at it next: now if it waits, when its lease ends if it runs"""
    return "hc:2:fits"


def fork_queue_key() -> str:
    """Sorted set of the ids of forks that are replaying, by when to look at them next"""
    return "hc:2:forks"


def sessions_key(tenant: str = "default") -> str:
    """Sorted set of the session ids of a tenant by the time they were opened"""
    return "hc:2:sessions" if tenant == "default" else f"hc:2:sessions:{tenant}"


def api_keys_key() -> str:
    """Hash: id of an API key → what it may do, and the hash of its secret, as JSON"""
    return "hc:2:keys"


def quota_key(id: str) -> str:
    """Hash: what an API key is limited in → when it will have paid off what it took"""
    return f"hc:2:{{quota:{id}}}"


def consumed_key(name: str) -> str:
    """How far a stream elsewhere was consumed by all sessions (service/consume); each session knows better"""
    return f"hc:2:consumed:{name}"


def epoch_key() -> str:
    return "hc:2:{epoch}:number"


def ready_key() -> str:
    """When a worker last made sure that the store takes writes"""
    return "hc:2:ready"


def server_key() -> str:
    return "hc:2:{epoch}:server"


def mark_key(commands: Sequence[tuple[Any, ...]]) -> str | None:
    """A key beside those of a script, alone or in a transaction: written so that there is something to replicate"""
    script = next((each for each in commands if each[0] in ("EVALSHA", "EVAL")), None)
    tag, brace, _ = script[3].partition("}") if script is not None else ("", "", "")
    return f"{tag}}}:mark" if brace else None


@lru_cache(4096)
def session_keys(sid: str) -> tuple[str, ...]:
    """All that a session has, but the mark that its id was used; in the order the scripts know them by"""
    first = (state_key(sid), log_key(sid), blocks_key(sid), block_order_key(sid))
    return (*first, answers_key(sid, 0), answers_key(sid, 1), *[key(sid) for key in _FURTHER])


def staged_keys(sid: str, name: str) -> tuple[str, ...]:
    """What has come of a session that comes in pieces, until it is whole, and these are renamed"""
    return tuple(_key(sid, f"staged:{name}:{what}") for what in ("log", "blocks", "block_order", "fits", "fit_models"))


_FURTHER = (spare_key, ids_key, waiting_key, settled_key, fits_key, fit_models_key, fit_points_key)
