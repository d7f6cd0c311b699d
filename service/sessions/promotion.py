"""From a fit to the online learner: it begins anew at the fit's reference point, with the fit's weights as its w₁.

v and z point the same way, so the weights of tangent features are weights in lifted coordinates too: the same boundary.
Hyperboloid features ⟨w,(x₀,x)⟩ are Minkowski's [w̃,x] with w̃ = (−w₀, w).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from service.batch.classifier import Classifier
from service.errors import InvalidParameter
from service.geometry import Array
from service.learners import hyperboloid, one_vs_rest, perceptron, second_order, strategic
from service.sessions.spec import Spec


def promoted(spec: Spec, state: Any, classifier: Classifier) -> Any:
    """The session's learner, begun from the fit"""
    if classifier.kind == "softmax":
        raise InvalidParameter("fit", "a softmax", "an svm: what divides the classes of a softmax is no hyperplane")
    if (classifier.features == "hyperboloid") != (spec.algorithm == "hyperboloid"):
        wanted = "with hyperboloid features" if spec.algorithm == "hyperboloid" else "with tangent or lift features"
        raise InvalidParameter("fit", f"{classifier.features} features", f"one {wanted} for {spec.algorithm}")
    rows = len(classifier.weights)
    references = [*classifier.references] * (rows // max(len(classifier.references), 1)) or [None] * rows
    members = [_begun(spec, state, p, w) for p, w in zip(references, classifier.weights, strict=True)]
    return members[0] if spec.binary else one_vs_rest.init(members)


def _begun(spec: Spec, state: Any, p: Array | None, w: Array) -> Any:
    c = spec.curvature
    if spec.algorithm == "hyperboloid":
        return hyperboloid.init(spec.dimension, c=c, w=w * np.r_[-1.0, np.ones(spec.dimension)])
    assert p is not None
    if spec.algorithm == "second_order":
        return second_order.init(p, c=c, a=spec.a, w=w)
    if spec.algorithm == "strategic":
        begun = strategic.init(p, c=c, budget=spec.budget, estimate=spec.estimate, w=w)
        return replace(begun, **strategic.known_budget(state))
    return perceptron.init(p, c=c, w=w)
