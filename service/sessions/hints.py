"""What goes wrong with a session, a sentence each, with its remedy."""

from __future__ import annotations

from collections.abc import Iterator

from service.learners.contract import full_matrices
from service.sessions.records import Loaded, Status
from service.sessions.tally import BLOCK, SORTED, expected_switches

#: From how many points on anything is said, and of how many a switch of labels must be expected.
ENOUGH, EXPECTED = 200, 50
#: How much better than the most frequent class a session must be, in parts of what is left to the best possible.
BETTER = 0.2
#: How much accuracy must be lost since the stream changed.
LOST = 0.1
RESTART = (
    'fork the session with "drift": {"on_drift": "restart"}, or open one so: it begins anew where the stream changes.'
)


def hints(loaded: Loaded) -> list[str]:
    return [*_sorted(loaded), *(_no_better(loaded) or _changed(loaded)), *_diagonal(loaded)]


def _sorted(loaded: Loaded) -> Iterator[str]:
    n, counts = loaded.tally.seen, loaded.confusion.counts()
    expected = expected_switches(counts.values()) if counts else 0.0
    if n >= ENOUGH and expected >= EXPECTED and loaded.tally.switches < SORTED * expected:
        yield (
            f"The labels come sorted: {loaded.tally.switches} of {n} points had another label than the one before;"
            f" in a random order some {expected:.0f} would have. Shuffle the stream, or the counts tell little and"
            " drift is not looked for."
        )


def _no_better(loaded: Loaded) -> list[str]:
    tally, shares, spec = loaded.tally, _shares(loaded), loaded.spec
    if tally.window_size < ENOUGH or loaded.status == Status.WARMING or len(shares) < 2:
        return []
    j = max(shares, key=lambda each: shares[each])
    right = _right(loaded)
    if right >= shares[j] + BETTER * (1 - shares[j]):
        return []
    if spec.features != "hemisphere" and spec.algorithm not in ("gaussian", "strategic"):
        remedy = (
            "A hyperplane a class through one point cannot cut out clusters: fork the session with"
            ' "algorithm": "auto", or open one without a reference.'
        )
    elif tally.alarms and not spec.restart:
        remedy = f"The stream has changed, last at point {tally.last_alarm}: {RESTART}"
    else:
        remedy = "Look whether the labels belong to these points, and whether the embedding tells the classes apart."
    return [
        f"Of the newest {tally.window_size} predictions {right:.0%} were right; always saying {spec.labels[j]!r} would"
        f" be right for {shares[j]:.0%}. {remedy}"
    ]


def _changed(loaded: Loaded) -> list[str]:
    """The stream has changed, and the learner has not got over it"""
    tally = loaded.tally
    if not tally.alarms or loaded.spec.restart or not len(tally.log):
        return []
    right, before = _right(loaded), 1 - int(tally.log.min()) / BLOCK
    if right > before - LOST:
        return []
    return [
        f"The stream has changed, last at point {tally.last_alarm}: of the newest {tally.window_size} predictions"
        f" {right:.0%} were right, at best {before:.0%} of {BLOCK} before. Where that lasts, {RESTART}"
    ]


def _right(loaded: Loaded) -> float:
    return 1 - loaded.tally.window_mistakes / loaded.tally.window_size


def _diagonal(loaded: Loaded) -> Iterator[str]:
    spec = loaded.spec
    if spec.kind in ("softmax", "gaussian", "auto") and not full_matrices(spec.dimension, spec.classes):
        yield (
            f"With {spec.classes} classes in {spec.dimension} dimensions only the diagonals of its matrices are kept,"
            " which ignores how coordinates go together; fewer dimensions, if they hold the structure, do better."
        )


def _shares(loaded: Loaded) -> dict[int, float]:
    """Of each class that was seen"""
    counts = loaded.confusion.counts()
    total = sum(counts.values())
    return {i: count / total for i, count in counts.items()}
