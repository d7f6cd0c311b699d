"""What is proven of a session: the certificates of its learner, the best margin of the retained points, and what can be
said without a margin: the error rate at all times at once, the vote's bound, the hinge-loss bounds."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.batch import svm
from service.errors import EmptyClass, InvalidParameter, NotConverged, NotSeparable
from service.geometry import Array, lift
from service.geometry import hemisphere as phi
from service.learners import auto, certificates, confidence, gaussian, hemisphere, hyperboloid, softmax, strategic
from service.learners.certificates import Certificate, Row, binaries, certificate
from service.sessions.records import Loaded
from service.sessions.rows import Batch

#: The u of a hinge-loss bound are the SVMs of these C; the least bound is told.
COSTS = (0.1, 1.0, 10.0)
Signs = NDArray[np.int8]


@dataclass(frozen=True)
class Hinge:
    """k ≤ bound, with the sum of the hinge losses of u over the whole stream"""

    bound: float
    loss: float
    norm: float  # ‖u‖


def best_margins(loaded: Loaded, points: Batch) -> list[float | None]:
    """The largest margin that a classifier has on these points, a class; None where none separates them

    A hard margin in lifted coordinates, min y⟨w,z⟩/‖w‖ = sinh ε; on the hemisphere min y⟨w,φ⟩/‖w‖ = γ.
    """
    spec, members = loaded.spec, binaries(loaded.state)
    counts = np.bincount(points.indices, minlength=len(spec.labels))
    if members and not counts.all():
        raise EmptyClass(spec.labels[int(np.argmin(counts))])
    root, found = math.sqrt(spec.curvature), list[float | None]()
    for member, y in zip(members, _signs(loaded, points), strict=True):
        if isinstance(member, hyperboloid.State):
            what = "a number: a hyperboloid perceptron has no reference point to fit at"
            raise InvalidParameter("margin", "best", what)
        if isinstance(member, Row):
            gamma = _hard_margin(phi(points.X, c=spec.curvature), y)
            found.append(gamma if gamma > 0 else None)
        else:
            sinh = _hard_margin(lift(member.p / root, points.X, c=spec.curvature), y)
            found.append(math.asinh(sinh) / root if sinh > 0 else None)
    return found


def _signs(loaded: Loaded, points: Batch) -> list[Signs]:
    """+1 and −1 for each of its binary learners"""
    n = len(binaries(loaded.state))
    classes = [1] if loaded.spec.binary and n else range(n)
    return [np.where(points.indices == j, np.int8(1), np.int8(-1)) for j in classes]


def _hard_margin(F: Array, y: Signs) -> float:
    """max min y⟨w,f⟩/‖w‖; 0 where nothing separates them"""
    try:
        w = svm.fit(F, y, margin="hard").w
    except NotSeparable:
        return 0.0
    return float((y * (F @ w)).min() / np.sqrt(w @ w))


def hinge_bounds(loaded: Loaded, points: Batch) -> list[Hinge | None]:
    """The hinge-loss bounds of each row of weights on the hemisphere; None where the theorem does not speak"""
    state = loaded.state
    if why_no_hinge(loaded, len(points)) is not None:
        return [None] * len(binaries(state))
    F = phi(points.X, c=loaded.spec.curvature)
    rows = zip(binaries(state), _signs(loaded, points), strict=True)
    return [_hinge(row, F, y) if isinstance(row, Row) else None for row, y in rows]


def why_no_hinge(loaded: Loaded, points: int) -> str | None:
    """Why there are no hinge-loss bounds, in a sentence; None: there are"""
    state, observed = loaded.state, loaded.counters.observed
    if not isinstance(state, hemisphere.State):
        return "loss=hinge: these bounds are for a perceptron or second_order session without a reference point."
    if state.start.any():
        return "loss=hinge: the bounds are for a learner that began at 0; this one began from a fit, or has grown."
    if points < observed:
        return (
            f"loss=hinge: the bounds need the whole stream; {points} of {observed} points are retained. "
            "Open the session with a larger keep_points."
        )
    if state.t != observed:
        return f"loss=hinge: the learner began anew in mid-stream; it has seen {state.t} of {observed} points."
    return None


def _hinge(row: Row, F: Array, y: Signs) -> Hinge | None:
    """The least of the bounds by the SVMs of some C; points of one class alone are separated by the constant of φ"""
    D, found = F.shape[1], list[Hinge]()
    one_class = len(y) == 0 or bool((y == y[0]).all())
    for C in COSTS:
        try:
            u = float(y[0] if len(y) else 1) * np.eye(D)[0] if one_class else svm.fit(F, y, loss="hinge", C=C).w
        except NotConverged:
            continue
        norm = float(np.sqrt(u @ u))
        rounding = len(y) * 8 * D * certificates.EPS * (1 + norm)
        loss = float(np.maximum(1 - y * (F @ u), 0).sum()) + (0.0 if one_class else rounding)
        bound = certificates.hinge_bound(row, u, loss)
        if bound is not None:
            found.append(Hinge(bound, loss, norm))
        if one_class:
            break
    return min(found, key=lambda hinge: hinge.bound, default=None)


def certified(
    loaded: Loaded, margin: float | None, points: Batch | None = None, *, best: bool = False, hinge: bool = False
) -> dict[str, Any]:
    """The certificate as it is answered; `best` and `hinge` are of the retained points"""
    certificates.require_margin(margin)
    state, spec, counters = loaded.state, loaded.spec, loaded.counters
    members = binaries(state)
    margins = [margin] * len(members) if not best or points is None else best_margins(loaded, points)
    hinges = hinge_bounds(loaded, points) if hinge and points is not None else [None] * len(members)
    proofs = [_with_hinge(certificate(m, e), h) for m, e, h in zip(members, margins, hinges, strict=True)]
    whole = _together(proofs, counters.updates, margin) if len(proofs) != 1 else proofs[0]
    classes = None
    if not spec.binary and proofs:
        classes = [{"label": label, **proof} for label, proof in zip(spec.labels, proofs, strict=True)]
    kept = None if points is None else len(points)
    return {
        **whole,
        "mistakes": counters.mistakes,
        "observed": counters.observed,
        "error_rate": asdict(confidence.interval(counters.observed, counters.mistakes)),
        "vote": _vote(spec.members, state) if isinstance(state, auto.State) else None,
        "classes": classes,
        "points": kept,
        "whole_stream": None if kept is None else kept == counters.observed,
        "notes": _notes(loaded, proofs, kept, stated=best or margin is not None, best=best, hinge=hinge),
    }


def _with_hinge(proof: Certificate, hinge: Hinge | None) -> dict[str, Any]:
    return {**asdict(proof), "hinge": None if hinge is None else asdict(hinge)}


def _together(proofs: list[dict[str, Any]], updates: int, margin: float | None) -> dict[str, Any]:
    """Of all classes: the sum of their bounds, the smallest of their margins and of their largest margins"""

    def all_of(name: str) -> list[Any] | None:
        values = [proof[name] for proof in proofs]
        return None if None in values or not values else values

    caps = [proof["largest_margin"] for proof in proofs if proof["largest_margin"] is not None]
    bounds, margins, radii, hinges = all_of("bound"), all_of("margin"), all_of("radius"), all_of("hinge")
    whole = Certificate(
        updates=updates,
        radius=max(radii) if radii else None,
        margin=margin if not proofs else min(margins) if margins else None,
        bound=math.fsum(bounds) if bounds else None,
        largest_margin=min(caps, default=None),
        disproved=any(proof["disproved"] for proof in proofs) if margins else None,
    )
    together = {
        "bound": math.fsum(hinge["bound"] for hinge in hinges or ()),
        "loss": math.fsum(hinge["loss"] for hinge in hinges or ()),
        "norm": math.sqrt(math.fsum(hinge["norm"] ** 2 for hinge in hinges or ())),
    }
    return {**asdict(whole), "hinge": together if hinges else None}


def _vote(names: tuple[str, ...], state: auto.State) -> dict[str, Any]:
    """The weighted majority's theorem, which needs no margin: its mistakes beside those of the best member"""
    best = auto.best(state)
    fewest = int(state.mistakes[best])
    return {
        "points": state.t,
        "mistakes": state.errors,
        "bound": auto.bound(fewest, len(state.members)),
        "best": names[best],
        "members": [
            {"algorithm": name, "mistakes": int(mistakes)} for name, mistakes in zip(names, state.mistakes, strict=True)
        ],
    }


def _notes(
    loaded: Loaded, proofs: list[dict[str, Any]], points: int | None, *, stated: bool, best: bool, hinge: bool
) -> list[str]:
    """What the numbers do not say by themselves, a sentence each"""
    state, notes = loaded.state, list[str]()
    if isinstance(state, auto.State):
        notes += _vote_notes(state, loaded.counters.observed, stated)
    if isinstance(state, softmax.State | gaussian.State):
        name = "softmax" if isinstance(state, softmax.State) else "wrapped normals"
        notes.append(f"No bound on the mistakes of {name} is proven; error_rate is what can be said of this stream.")
    if isinstance(state, hemisphere.State):
        notes.append("margin is γ, Euclid's on the hemisphere coordinates of the points; it is at most √2.")
        if state.average:
            notes.append("bound is on the updates of the last iterate; what answers is the average, see error_rate.")
    if isinstance(state, strategic.State):
        notes += _strategic_notes(state, best)
    if not loaded.spec.binary and proofs:
        notes.append("Every class has its own margin against the rest; bound is the sum of theirs.")
    if best:
        notes += _not_separated(loaded, proofs)
    if hinge and points is not None and (why := why_no_hinge(loaded, points)) is not None:
        notes.append(why)
    return notes


def _vote_notes(state: auto.State, observed: int, stated: bool) -> list[str]:
    notes = [
        "vote: the weighted majority cannot have made more mistakes than bound, given those of its best member; "
        "that needs no margin and holds on any stream."
    ]
    if state.t < observed:
        notes.append(
            f"vote is of the newest {state.t} of {observed} points: the learners began anew where the stream changed. "
            "error_rate is of all."
        )
    if stated:
        notes.append(
            "margin: of a vote there is no bound by a margin. A session of perceptron or second_order has one: "
            'fork this one with that "algorithm".'
        )
    return notes


def _strategic_notes(state: strategic.State, best: bool) -> list[str]:
    notes = []
    if state.estimating:
        notes.append("There is no bound while the budget is estimated.")
    elif not state.start.any() and certificates.leaves_the_ball(state):
        notes.append(
            "There is no bound: an agent that would have to move beyond the radius limit of the ball stays instead, "
            "which the theorem does not allow for."
        )
    if best:
        notes.append(
            "margin=best is that of the points where agents moved them to; the theorem speaks of where they were, "
            "so neither it nor a bound by it is proven of those: state a margin of your own."
        )
    return notes


def _not_separated(loaded: Loaded, proofs: list[dict[str, Any]]) -> list[str]:
    """Of margin=best: which classes have none"""
    without = [proof["margin"] is None for proof in proofs]
    if not any(without):
        return []
    if loaded.spec.binary:
        which = "the two classes"
    else:
        names = [str(label) for label, missing in zip(loaded.spec.labels, without, strict=True) if missing]
        which = f"{', '.join(names[:10])} from the rest"
    remedy = (
        "loss=hinge bounds the updates without a margin."
        if isinstance(loaded.state, hemisphere.State)
        else "A session without a reference point divides classes by spheres, not by hyperplanes through one point."
    )
    return [f"Nothing separates {which}, so there is no bound. {remedy}"]
