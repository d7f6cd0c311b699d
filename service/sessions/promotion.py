"""From a fit to the online learner: it begins anew as the fit, and answers as the fit does.

    perceptron, second_order, strategic at p   an svm on tangent or lift features: its reference points and weights
    the same without a reference point         an svm on hemisphere features
    hyperboloid                                an svm on hyperboloid features
    softmax                                    a softmax on hemisphere features, probabilities and Hessian included
    auto                                       one member of the vote, by name

v and z point the same way, so the weights of tangent features are weights in lifted coordinates too: the same boundary.
Hyperboloid features ⟨w,(x₀,x)⟩ are Minkowski's [w̃,x] with w̃ = (−w₀, w). An svm of K > 2 classes compares them by
Platt's log odds s⟨w,f⟩ + o, which come along: as scales of one_vs_rest, and on φ, whose first coordinate is 1, as the
weights s·w + o·e₀.

What answers otherwise than the fit is refused. A strategic learner's threshold is its budget beyond the fit's boundary,
where agents would come: it answers otherwise between the two, and `agreement` says how often.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from service.batch.classifier import Classifier
from service.errors import InvalidParameter
from service.geometry import Array
from service.learners import (
    auto,
    gaussian,
    hemisphere,
    hyperboloid,
    one_vs_rest,
    perceptron,
    second_order,
    softmax,
    strategic,
)
from service.learners.contract import learner_of
from service.sessions.rows import Batch
from service.sessions.spec import Spec


def promoted(spec: Spec, state: Any, classifier: Classifier, member: str | None = None) -> Any:
    """The session's learner, begun from the fit; of a vote that member of it"""
    if not isinstance(state, auto.State):
        if member is not None:
            raise InvalidParameter("member", member, f"left out: there is no vote in a session of {spec.algorithm}")
        return _begun(spec, state, classifier)
    at = _place(spec, member)
    members = (*state.members[:at], _begun(spec, state.members[at], classifier), *state.members[at + 1 :])
    return replace(state, members=members)


def agreement(spec: Spec, state: Any, classifier: Classifier, points: Batch, member: str | None = None) -> float | None:
    """On which share of the points the promoted learner, or member, answers as the fit does; None: without points"""
    if not len(points):
        return None
    learner = promoted(spec, state, classifier, member)
    if isinstance(learner, auto.State):
        learner = learner.members[_place(spec, member)]
    decided = spec.decide(learner_of(learner).score(learner, points.X))
    return float((decided == classifier.decide(points.X)).mean())


def _place(spec: Spec, member: str | None) -> int:
    if member not in spec.members:
        those = ", ".join(spec.members)
        raise InvalidParameter("member", member, f"one of {those}: the learner of the vote that is to begin anew")
    return spec.members.index(member)


def _begun(spec: Spec, state: Any, classifier: Classifier) -> Any:
    """A learner like `state`, begun from the fit"""
    if isinstance(state, gaussian.State):
        what = "for another learner: a gaussian has no weights to begin from"
        raise InvalidParameter("fit", f"a {classifier.kind}", what)
    kind, features = ("softmax" if isinstance(state, softmax.State) else "svm"), _taken(state)
    if classifier.kind != kind or classifier.features not in features:
        found = f"a {classifier.kind} on {classifier.features} features"
        raise InvalidParameter("fit", found, f'{{"kind": "{kind}", "features": "{features[0]}"}} for this learner')
    if isinstance(state, softmax.State):
        return softmax.init(
            spec.dimension,
            classes=len(spec.labels),
            c=spec.curvature,
            W=_logits(classifier),
            points=classifier.points,
            curvature=classifier.curvature,
        )
    if isinstance(state, hemisphere.State):
        return hemisphere.init(
            spec.dimension,
            classes=len(spec.labels),
            c=spec.curvature,
            a=state.a,
            average=state.average,
            W=_odds(classifier),
            points=classifier.points,
        )
    return _at_references(spec, state, classifier)


def _taken(state: Any) -> tuple[str, ...]:
    """The features of fits that a learner can go on from"""
    if isinstance(state, hemisphere.State | softmax.State):
        return ("hemisphere",)
    first = state.members[0] if isinstance(state, one_vs_rest.State) else state
    return ("hyperboloid",) if isinstance(first, hyperboloid.State) else ("tangent", "lift")


def _logits(classifier: Classifier) -> Array:
    """A row of weights a class; of two, whose fit has the difference, half of it each"""
    w = classifier.weights
    return np.vstack([-w / 2, w / 2]) if len(w) == 1 else w


def _odds(classifier: Classifier) -> Array:
    """Rows of weights on φ whose products are the log odds s⟨w,φ⟩ + o; of two classes the boundary alone decides"""
    if len(classifier.weights) == 1 or not len(classifier.platt):
        return classifier.weights
    s, o = classifier.scales.T
    return np.asarray(s[:, None] * classifier.weights + o[:, None] * np.eye(classifier.weights.shape[1])[0])


def _at_references(spec: Spec, state: Any, classifier: Classifier) -> Any:
    rows = len(classifier.weights)
    references = [*classifier.references] * (rows // max(len(classifier.references), 1)) or [None] * rows
    first = state.members[0] if isinstance(state, one_vs_rest.State) else state
    members = [_member(first, spec, p, w) for p, w in zip(references, classifier.weights, strict=True)]
    if spec.binary:
        return members[0]
    s, o = classifier.scales.T if len(classifier.platt) else (np.ones(rows), np.zeros(rows))
    root, tangent = math.sqrt(spec.curvature), classifier.features == "tangent"
    lengths = [_length(member) / _unit(member, root, tangent) for member in members]
    return one_vs_rest.init(members, scale=s * lengths, offset=o, tangent=tangent)


def _member(like: Any, spec: Spec, p: Array | None, w: Array) -> Any:
    c = spec.curvature
    if isinstance(like, hyperboloid.State):
        return hyperboloid.init(spec.dimension, c=c, w=w * np.r_[-1.0, np.ones(spec.dimension)])
    assert p is not None
    if isinstance(like, second_order.State):
        return second_order.init(p, c=c, a=like.a, w=w)
    if isinstance(like, strategic.State):
        begun = strategic.init(p, c=c, budget=spec.budget, estimate=like.estimating, w=w)
        return replace(begun, **strategic.known_budget(like))
    return perceptron.init(p, c=c, w=w)


def _length(member: Any) -> float:
    """What ⟨w,f⟩ was divided by on its way to a distance: ‖w‖, of a spacelike w on the hyperboloid √[w,w]"""
    w = member.w
    if isinstance(member, hyperboloid.State) and w[1:] @ w[1:] > w[0] ** 2:
        return math.sqrt(float(w[1:] @ w[1:] - w[0] ** 2))
    return math.sqrt(float(w @ w))


def _unit(member: Any, root: float, tangent: bool) -> float:
    """What f is, in parts of what the learner works on: v = z·(r/sinh r)/(σ_p√c), h = h₁/√c, and z itself"""
    if isinstance(member, hyperboloid.State):
        return root
    return 2 / (1 - float(member.p @ member.p)) * root if tangent else 1.0
