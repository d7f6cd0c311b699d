"""The keys in Redis, a function each. Those of a session share the hash tag {id}, so one script may touch them all."""

from __future__ import annotations

from functools import lru_cache


def _key(sid: str, what: str) -> str:
    return f"hc:1:{{{sid}}}:{what}"


def born_key(sid: str) -> str:
    """Set when the id is first used, and never removed: an id is not given away twice"""
    return _key(sid, "born")


def session_key(sid: str) -> str:
    """Hash: the spec, the revision, the counters"""
    return _key(sid, "session")


def state_key(sid: str) -> str:
    """The encoded learner"""
    return _key(sid, "state")


def answers_key(sid: str) -> str:
    """Hash: idempotency key → fingerprint and answer"""
    return _key(sid, "answers")


def order_key(sid: str) -> str:
    """List of "since size key" of the idempotency keys, oldest first"""
    return _key(sid, "order")


def points_key(sid: str) -> str:
    """List of blocks of retained points, oldest first: rows of float64, the label's index last"""
    return _key(sid, "points")


def events_key(sid: str) -> str:
    """Stream: one event a commit"""
    return _key(sid, "events")


def commits_key(sid: str) -> str:
    """List of the newest commits' ids"""
    return _key(sid, "commits")


def rows_key(sid: str) -> str:
    """List of how many points each block has: the blocks themselves are not to be copied to find out"""
    return _key(sid, "rows")


def confusion_key(sid: str) -> str:
    """Hash: "true class:predicted class" → how often"""
    return _key(sid, "confusion")


def log_key(sid: str) -> str:
    """List of mistakes per 1,000 points, oldest first"""
    return _key(sid, "log")


def ids_key(sid: str) -> str:
    """Hash: id → a point that waits for its label, or what became of it"""
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
    """Hash: "name:number" → a piece of the points of a fit, until it ends; name → since when they stand by for one"""
    return _key(sid, "fit_points")


def fit_queue_key() -> str:
    """Sorted set of "session fit" by when to look at it next: now if it waits, when its lease ends if it runs"""
    return "hc:1:fits"


def sessions_key() -> str:
    """Sorted set of session ids by the time they were opened"""
    return "hc:1:sessions"


def epoch_key() -> str:
    return "hc:1:{epoch}:number"


def server_key() -> str:
    return "hc:1:{epoch}:server"


@lru_cache(4096)
def session_keys(sid: str) -> tuple[str, ...]:
    """All that a session has, but the mark that its id was used"""
    return tuple(key(sid) for key in _SESSION_KEYS)


#: In the order the scripts know them by.
_SESSION_KEYS = (
    session_key,
    state_key,
    answers_key,
    order_key,
    points_key,
    events_key,
    commits_key,
    rows_key,
    confusion_key,
    log_key,
    ids_key,
    waiting_key,
    settled_key,
    fits_key,
    fit_models_key,
    fit_points_key,
)
