"""The batch softmax on hemisphere coordinates φ that an online softmax begins anew from, at t = 25·2^j points.

½‖W‖² + C Σ loss: with C = 1000 the restarted learner did best on the real streams (of 1, 10, 100, 1000, 10⁴). A class
that has not come yet has a thousandth of a point at the origin, so that its weights are finite, its probability small.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from service.batch import softmax, softmax_sums
from service.batch.passes import Passes
from service.geometry import Array, hemisphere, require_ball

#: The first refit, and what stands for a point of a class that has not come yet.
FIRST, ABSENT = 25, 1e-3
C = 1000.0
#: The most numbers of full matrices: an online softmax' own.
FULL = 2**18


def due(t: int) -> bool:
    """Whether t = 25·2^j"""
    return t >= FIRST and t % FIRST == 0 and (t // FIRST).bit_count() == 1


def fit(X: ArrayLike, y: ArrayLike, classes: int, *, c: float = 1.0) -> Array | None:
    """W, a row a class, fitted to the points with labels 0 … K−1; None while there are fewer than two classes"""
    X, labels = require_ball(X, c=c), np.asarray(y)
    absent = np.flatnonzero(np.bincount(labels, minlength=classes) == 0)
    if classes - len(absent) < 2:
        return None
    F = hemisphere(np.concatenate([X, np.zeros((len(absent), X.shape[1]))]), c=c)
    weight = np.concatenate([np.ones(len(X)), np.full(len(absent), ABSENT)])
    return softmax.fit(F, np.concatenate([labels, absent]), classes=classes, C=C, sample_weight=weight).W


def curvature(passes: Passes, W: Array) -> Array:
    """Σ max(e_k(1−e_k), FLOOR) φφᵀ of each class k, e = softmax(Wφ), K×D×D; where that is too much its diagonals, K×1×D

    What the points of a fit would have left in an online softmax' A_k, beside its ridge.
    """
    return passes(softmax_sums.curvature, softmax_sums.At(W, hessian=W.size * W.shape[1] <= FULL)).totals()[0]
