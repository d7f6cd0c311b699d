"""Fits that have ended, as a snapshot carries them. Like all of a snapshot they are read as if a stranger had written
them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from service.batch.classifier import PLAIN, Classifier, plain_features
from service.errors import HorocycleError, InvalidSnapshot
from service.geometry import require_ball
from service.sessions.saved_fit import SavedFit
from service.sessions.spec import LARGEST, Spec

#: The end of the year 9999, which is the last that a datetime knows, and the largest number of a classifier.
LATEST, LARGEST_NUMBER = 253_402_300_799_000, 1e150
#: Bytes of a packed classifier: weights, references and curvatures.
LARGEST_MODEL = 3 * 8 * LARGEST + (1 << 16)
KINDS = {"svm": ("tangent", "lift", *PLAIN), "softmax": PLAIN}


def to_json(fit: SavedFit) -> dict[str, Any]:
    """All but the model"""
    told = {"id": fit.id, "status": fit.status, "asked": dict(fit.asked), "fingerprint": fit.fingerprint.hex()}
    return {**told, **fit.numbers, **fit.told}


def from_json(value: Any, spec: Spec, model: bytes) -> SavedFit:
    """What `to_json` wrote, and its model; refused unless a fit of this session can be so"""
    try:
        id, status, asked, fingerprint = (value[name] for name in ("id", "status", "asked", "fingerprint"))
        numbers, told = ({name: value[name] for name in names} for names in (SavedFit.NUMBERS, SavedFit.TOLD))
        marked = bytes.fromhex(fingerprint)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidSnapshot("a fit of the snapshot is malformed") from error
    ends = (
        status in SavedFit.ENDED,
        (status == "done") == bool(model),
        (status == "done") == (told["report"] is not None),
    )
    named = isinstance(id, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,64}", id) is not None and len(marked) <= 64
    typed = isinstance(asked, dict) and all(each is None or isinstance(each, dict) for each in told.values())
    if not (all(ends) and named and typed and _possible(numbers)):
        raise InvalidSnapshot("a fit of the snapshot cannot be")
    if model:
        _check_model(spec, model)
    return SavedFit(id, status, asked, marked, numbers, told, model)


def _possible(numbers: Mapping[str, Any]) -> bool:
    instants = [numbers[name] for name in SavedFit.INSTANTS]
    attempts, progress = numbers["attempts"], numbers["progress"]
    return (
        all(each is None or (type(each) is int and 0 <= each <= LATEST) for each in instants)
        and type(attempts) is int
        and 0 <= attempts < 1000
        and type(progress) in (int, float)
        and 0 <= progress <= 1
    )


def _check_model(spec: Spec, packed: bytes) -> None:
    """A classifier of this session's ball and labels, or of the first of them, with finite numbers"""
    wrong = InvalidSnapshot("the classifier of a fit of the snapshot cannot be")
    try:
        model = Classifier.unpack(packed)
        kind, features = KINDS[model.kind], model.features
        if features not in kind or model.c != spec.curvature or type(model.points) is not int:
            raise wrong
        rows, origin = len(model.weights), np.zeros((1, spec.dimension))
        plain = features in PLAIN
        width = plain_features(model.kind, features, origin, model.c).shape[1] if plain else spec.dimension
        shapes = (
            model.weights.shape == (rows, width) and rows in (1, *range(3, spec.classes + 1)),
            model.references.shape in ([(0, spec.dimension)] if plain else [(n, spec.dimension) for n in (1, rows)]),
            model.platt.shape in ((0, 2), (rows, 2)),
            model.curvature.shape[0] in (0, rows, model.classes) and model.curvature.size <= LARGEST,
        )
        arrays = (model.weights, model.references, model.platt, model.curvature)
        finite = all(not each.size or np.abs(each).max() <= LARGEST_NUMBER for each in arrays)
        if not (all(shapes) and finite and math.isfinite(model.c)):
            raise wrong
        if len(model.references):
            require_ball(model.references, spec.dimension, c=spec.curvature)
        if len(model.scores(origin)) != 1:
            raise wrong
    except (HorocycleError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise wrong from error
