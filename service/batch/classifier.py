"""Batch classifiers: fitted to labelled points once, with the duality gap that proves it, and then only asked.

    svm        one-vs-rest on features at a reference point a class (two classes: one), Platt's probabilities
    softmax    multinomial logistic regression on hyperboloid coordinates and a constant, or on the hemisphere φ: no
               reference point, calibrated

A classifier of two classes has one row of weights, which points to the last class.
Scores: for svm the signed hyperbolic distance to the boundary, n×K for K > 2 (the boundary of tangent features is the
geodesic that lifted ones with the same weights have); for features without a reference point ⟨w,f⟩; for softmax the
logits (two classes: their difference). A row of any of them depends, bit for bit, on that point alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np

from service.batch import calibration, hemisphere_softmax, softmax, svm
from service.batch import reference_point as reference
from service.batch.passes import Chunk, Seen
from service.batch.points import Indices, InMemory, Points, View
from service.errors import EmptyClass, InvalidParameter, StateCorrupt, TooManyPoints
from service.geometry import Array, hemisphere, signed_distance, to_hyperboloid

Progress = Callable[[float], None]


@dataclass(frozen=True)
class Recipe:
    """What is to be fitted."""

    kind: str = "svm"
    margin: str = "soft"
    loss: str = "hinge"
    C: float = 1.0
    features: str = "tangent"
    reference: str | list[list[float]] = "hull"  # a method, or the points: one, or one a class
    probabilities: bool = True


@dataclass(frozen=True)
class Classifier:
    kind: str
    features: str
    c: float  # curvature −c
    references: Array  # one row, one a class, or none
    weights: Array  # one row, or one a class
    platt: Array  # a and b of each row; no rows: no probabilities
    points: int = 0  # how many it was fitted to
    #: of a softmax on φ, for an online one to go on with: see hemisphere_softmax.py
    curvature: Array = field(default_factory=lambda: np.zeros((0, 0, 0)))

    @property
    def classes(self) -> int:
        return max(2, len(self.weights))

    def decisions(self, X: Array) -> Array:
        """⟨w,f⟩, a column a row of weights"""
        if self.features in PLAIN:
            return np.asarray(np.vecdot(plain_features(self.kind, self.features, X, self.c)[:, None], self.weights))
        pairs = zip(self._references(), self.weights, strict=True)
        return np.stack([np.vecdot(svm.features(X, p, self.features, c=self.c), w) for p, w in pairs], axis=1)

    @property
    def scales(self) -> Array:
        """s and o of each row of weights: ln P/(1−P) = s⟨w,f⟩ + o, by Platt; no rows: no probabilities

        K > 2 classes are decided by the largest of these, so a learner that begins from the weights and decides by the
        largest of its own scores needs them.
        """
        return -self.platt

    def scores(self, X: Array) -> Array:
        if self.features in PLAIN:
            return _flat(self.decisions(X))
        pairs = zip(self._references(), self.weights, strict=True)
        return _flat(np.stack([signed_distance(p, w, X, c=self.c) for p, w in pairs], axis=1))

    def probabilities(self, X: Array) -> Array | None:
        """n×K; each row sums to one"""
        decisions = self.decisions(X)
        if self.kind == "softmax":
            return softmax.probabilities(np.eye(self.classes), _both(decisions))
        if not len(self.platt):
            return None
        P = [calibration.probability(calibration.Platt(*ab), f) for ab, f in zip(self.platt, decisions.T, strict=True)]
        return np.stack([1 - P[0], P[0]], axis=1) if len(P) == 1 else calibration.normalise(np.stack(P, axis=1))

    def decide(self, X: Array) -> Indices:
        """The class of each point: by the side of the boundary, or (K > 2) the largest probability or decision

        Probabilities are compared as log odds: those of two classes may both be rounded to 1.
        """
        if len(self.weights) == 1:
            return (self.scores(X) >= 0).astype(np.int64)
        odds = self.decisions(X)
        if len(self.platt):
            odds = odds * self.scales[:, 0] + self.scales[:, 1]
        return np.asarray(np.argmax(odds, axis=1), dtype=np.int64)

    def _references(self) -> Array:
        d = self.references.shape[1]
        return np.broadcast_to(self.references, (len(self.weights), d))

    def pack(self) -> bytes:
        """A JSON header that says what the bytes are, then the bytes; a checksum before it all"""
        arrays = {name: np.ascontiguousarray(getattr(self, name), dtype="<f8") for name in _ARRAYS}
        shapes = {name: array.shape for name, array in arrays.items()}
        names = {"kind": self.kind, "features": self.features, "c": self.c, "points": self.points}
        head = json.dumps({**names, "shapes": shapes}).encode()
        body = len(head).to_bytes(4, "little") + head + b"".join(array.tobytes() for array in arrays.values())
        return blake2b(body, digest_size=16).digest() + body

    @classmethod
    def unpack(cls, data: bytes) -> Classifier:
        digest, body = data[:16], data[16:]
        if digest != blake2b(body, digest_size=16).digest():
            raise StateCorrupt("the checksum does not match: the stored fit is damaged")
        at = 4 + int.from_bytes(body[:4], "little")
        head = json.loads(body[4:at])
        arrays = {}
        for name, shape in head["shapes"].items():  # a fit from before φ has fewer
            arrays[name] = np.frombuffer(body, dtype="<f8", count=math.prod(shape), offset=at).reshape(shape)
            at += arrays[name].nbytes
        return cls(head["kind"], head["features"], head["c"], **arrays, points=head.get("points", 0))


_ARRAYS = ("references", "weights", "platt", "curvature")
#: Features that need no reference point
PLAIN = ("hyperboloid", "hemisphere")


def plain_features(kind: str, features: str, X: Array, c: float) -> Array:
    """φ; or hyperboloid coordinates, with a constant beside them for a softmax"""
    if features == "hemisphere":
        return hemisphere(X, c=c)
    return softmax.features(X, c=c) if kind == "softmax" else to_hyperboloid(X, c=c)


def require(recipe: Recipe, labels: tuple[str | int, ...], indices: Indices, limit: int) -> None:
    """That it can be fitted at all: known before a job begins"""
    if len(indices) > limit:
        raise TooManyPoints(len(indices), limit)
    found = np.bincount(indices, minlength=len(labels))
    if not found.all():
        raise EmptyClass(labels[int(np.argmin(found))])
    boundaries = 1 if len(labels) == 2 else len(labels)
    if isinstance(recipe.reference, list) and len(recipe.reference) not in (1, boundaries):
        allowed = "one point: two classes have one boundary" if boundaries == 1 else "one point, or one a label"
        raise InvalidParameter("reference", f"{len(recipe.reference)} points", allowed)


def fit(recipe: Recipe, X: Array, indices: Indices, K: int, c: float, progress: Progress) -> tuple[Classifier, Any]:
    """The classifier, and what is to be told of it"""
    return fit_points(recipe, InMemory(X, indices, K), c, progress)


def fit_points(recipe: Recipe, points: Points, c: float, progress: Progress) -> tuple[Classifier, Any]:
    """The same for points that may be anywhere"""
    if recipe.kind == "softmax":
        return _softmax(recipe, points, c, progress)
    classes = [1] if points.K == 2 else list(range(points.K))
    learned = _references(recipe, points, c)
    references = np.array([each.p for each in learned]).reshape(len(learned), points.d)
    fits, platt, support = [], [], []
    for i, k in enumerate(classes):
        p = references[min(i, len(references) - 1)] if len(references) else None
        passes = points.passes(View(recipe.features, c, p, positive=k, C=recipe.C))
        part = partial(_part, progress, i, len(classes))
        found = svm.solve(passes, margin=recipe.margin, loss=recipe.loss, progress=part)
        fits.append(found)
        support.append(svm.support(found))
        if recipe.probabilities:
            platt.append(calibration.solve(passes, found.w))
    classifier = Classifier(
        "svm",
        recipe.features,
        c,
        references,
        np.array([each.w for each in fits]),
        np.array([(each.a, each.b) for each in platt]).reshape(len(platt), 2),
        points=points.n,
    )
    return classifier, {
        **_told(classifier, points, c),
        "certificate": _certificate([(each.primal, each.dual) for each in fits]),
        "support_vectors": support,
        "iterations": sum(each.run.steps for each in fits),
        "stopped": ["gap"],
        "reference_methods": [{"method": each.method, **each.report} for each in learned],
    }


def _part(progress: Progress, i: int, of: int, done: float) -> None:
    progress((i + done) / of)


def _softmax(recipe: Recipe, points: Points, c: float, progress: Progress) -> tuple[Classifier, Any]:
    passes = points.passes(View(recipe.features, c, softmax=True, C=recipe.C))
    fitted = softmax.solve(passes, points.K, progress=progress)
    W = fitted.W[1:] - fitted.W[:1] if points.K == 2 else fitted.W
    on_phi = recipe.features == "hemisphere"
    classifier = Classifier(
        "softmax",
        recipe.features,
        c,
        references=np.empty((0, points.d)),
        weights=W,
        platt=np.empty((0, 2)),
        points=points.n,
        curvature=hemisphere_softmax.curvature(passes, fitted.W) if on_phi else np.zeros((0, 0, 0)),
    )
    return classifier, {
        **_told(classifier, points, c),
        "certificate": _certificate([(fitted.primal, fitted.dual)]),
        "support_vectors": None,
        "iterations": fitted.iterations,
        "stopped": ["gap"],
        "reference_methods": [],
    }


def _references(recipe: Recipe, points: Points, c: float) -> list[reference.Learned]:
    """Given, or learned: from some of the points, where they are too many, and then that is told"""
    if recipe.features in PLAIN:
        return []
    if isinstance(recipe.reference, list):
        return [reference.Learned(np.array(p), "given") for p in recipe.reference]
    X, indices = points.some()
    if points.K == 2:
        learned = [reference.learn(X, np.where(indices == 1, 1, -1), recipe.reference, c=c)]
    else:
        learned = reference.learn_each(X, indices, points.K, recipe.reference, c=c)
    if len(X) == points.n:
        return learned
    return [replace(each, report={**each.report, "sampled": len(X)}) for each in learned]


def _told(classifier: Classifier, points: Points, c: float) -> dict[str, Any]:
    [[right]] = points.passes(View(curvature=c))(_right, classifier).totals()
    return {
        "points": points.n,
        "training_accuracy": float(right) / points.n,
        "references": classifier.references.tolist() or None,
    }


def _right(chunk: Chunk, classifier: Classifier) -> Seen:
    """How many points are of the class that is decided for"""
    return Seen((np.array([np.count_nonzero(classifier.decide(chunk.F) == chunk.y)]),))


def _certificate(values: list[tuple[float, float]]) -> dict[str, Any]:
    """Primal and dual of all problems together: their sums, and each one's own if there are several"""

    def of(P: float, D: float) -> dict[str, float]:
        return {"primal": P, "dual": D, "gap": (P - D) / P if P else 0.0}

    total = of(sum(P for P, _ in values), sum(D for _, D in values))
    return {**total, "classes": [of(P, D) for P, D in values] if len(values) > 1 else None}


def _both(decisions: Array) -> Array:
    """The logits of all classes: of two, the first one's are 0"""
    return np.hstack([np.zeros_like(decisions), decisions]) if decisions.shape[1] == 1 else decisions


def _flat(columns: Array) -> Array:
    return columns[:, 0] if columns.shape[1] == 1 else columns
