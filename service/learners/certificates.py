"""What the theorems say about a learner, from its state alone.

With k updates, r the largest d(p, x) seen, and a margin ε that some classifier through p keeps on the stream:

    perceptron     k ≤ (sinh r / sinh ε)²,              and  k sinh ε ≤ ‖w‖
    from w₁ ≠ 0    k ≤ (sinh r / sinh ε)² + 2‖w₁‖/sinh ε, and  k sinh ε ≤ ‖w − w₁‖; hyperboloid alike, strategic not
    second order   k ≤ √((a + λ_max) log det(A/a)) / sinh ε  (a > 0),  and  k sinh ε ≤ ‖ξ‖
                   k ≤ √(λ_max Q) / sinh ε, Q = Σ zᵀA⁺z  (a = 0)
    strategic      k ≤ (f(r)/sinh ε)², f(r) = r sinh(q)/q, q = √(r² + α²)  (α known),  and  k sinh ε ≤ ‖w‖
    hyperboloid    k ≤ cosh 2r · cosh 2(r−ε) / sinh² ε  (both classes seen),  and  k sinh ε ≤ ‖w‖ √cosh 2(r−ε)

On the hemisphere φ, where ‖φ‖² = 2, the margin is Euclid's, γ ≤ √2, in the place of sinh ε, and sinh r is √2.

The second inequalities, read backwards, cap the margin: no classifier through p separates what was seen by more. A
stated ε above the cap is disproved. Bounds and caps are rounded outwards: rounding never disproves a true margin, nor
are there ever more updates than a bound allows.

From w₁ ≠ 0 nothing holds for strategic: its step ṽ against an agent that moved is what of u is orthogonal to w, and
that leads to w* only while ⟨w,w*⟩ ≥ 0, as it is from 0 on. Where w₁ points the wrong way and u with it, ṽ = 0: the same
agent fools it for ever.

The strategic bound is not the paper's, ((sinh r + α/σ_p)/sinh ε)², which is wrong: its proof drops η² and applies the
radius of the true points to the moved ones. It is reported beside the right one as `paper_bound`. Neither holds where
a move might end beyond the ball's radius limit, d(0,p) + √(r²+α²) > limit: an agent that cannot go there stays, in
the band that the proof knows to be empty.

Where there is no margin, on the hemisphere, from 0, with the hinge losses L = Σ max(0, 1 − y⟨u,φ⟩) of any u over all
points of the stream:

    perceptron     √k ≤ (√2‖u‖ + √(2‖u‖² + 4L))/2
    second order   k ≤ L + √(uᵀAu · Q)       (Q ≤ log det(A/a), so also with that; the first is false for it)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.errors import InvalidParameter
from service.geometry import RADIUS_LIMIT, Array
from service.learners import hemisphere, hyperboloid, one_vs_rest, perceptron, second_order, strategic

EPS = float(np.finfo(np.float64).eps)
#: Up to EXACT dimensions λ_max is computed; above it guessed by so many steps of Lanczos, and proven
EXACT, STEPS = 64, 40


@dataclass(frozen=True)
class Certificate:
    """Lengths are in the units of the session's curvature, γ has none; None where nothing is proven."""

    updates: int  # k
    radius: float | None  # r; None on the hemisphere, where every ‖φ‖ = √2
    margin: float | None  # ε, as stated; on the hemisphere γ
    bound: float | None  # k cannot exceed this, if ε is a margin of the stream
    largest_margin: float | None  # no classifier has a larger margin on what was seen
    disproved: bool | None  # ε is larger than that
    paper_bound: float | None = None  # the strategic bound as printed in the paper, which is wrong


@dataclass(frozen=True)
class _Proof:
    """In the unit ball: the bound as a function of ε, and the largest margin."""

    bound: Callable[[float], float | None]
    cap: float | None
    paper_bound: Callable[[float], float | None] = lambda epsilon: None


@dataclass(frozen=True)
class Row:
    """One row of weights on the hemisphere: a binary learner of its own"""

    a: float
    xi: Array
    start: Array
    factor: Array
    rank: int
    k: int
    q: float


Lifted = perceptron.State | second_order.State | strategic.State | hyperboloid.State
Binary = Lifted | Row


def binaries(state: Any) -> tuple[Binary, ...]:
    """The binary learners that a learner consists of, of which theorems speak: one, or one a class; else none"""
    if isinstance(state, one_vs_rest.State):
        return state.members
    if isinstance(state, hemisphere.State):
        first = state.a == math.inf
        return tuple(
            Row(state.a, xi, start, xi[:0] if first else state.factor[r], int(rank), int(k), float(q))
            for r, (xi, start, rank, k, q) in enumerate(
                zip(state.xi, state.start, state.rank, state.k, state.q, strict=True)
            )
        )
    return (state,) if type(state) in _PROOFS else ()


def certificate(state: Any, margin: float | None = None) -> Certificate:
    """What is proven of a binary learner; the bounds need a stated margin ε > 0."""
    require_margin(margin)
    if isinstance(state, hemisphere.State):
        [state] = binaries(state)
    root = 1.0 if isinstance(state, Row) else math.sqrt(state.c)
    proof = _PROOFS[type(state)](state)
    epsilon = None if margin is None else margin * root
    cap = None if proof.cap is None else proof.cap / root
    return Certificate(
        updates=state.k,
        radius=None if isinstance(state, Row) else radius(state) / root,
        margin=margin,
        bound=None if epsilon is None else _outwards(_at(proof.bound, epsilon), state, epsilon),
        largest_margin=cap,
        disproved=None if margin is None else cap is not None and margin > cap,
        paper_bound=None if epsilon is None else _at(proof.paper_bound, epsilon),
    )


def require_margin(margin: float | None) -> None:
    if margin is not None and not 0 < margin < math.inf:
        raise InvalidParameter("margin", margin, "a positive number")


def radius(state: Lifted) -> float:
    """r = 2 asinh √reach, in the unit ball"""
    return 2 * math.asinh(math.sqrt(state.reach))


def corrected_radius(r: float, alpha: float) -> float:
    """f(r) = r sinh(q)/q, q = √(r²+α²): how long an update of the strategic perceptron can be"""
    q = math.hypot(r, alpha)
    return r * _sinh(q) / q


def _perceptron(state: perceptron.State) -> _Proof:
    r, start = _sinh(radius(state)), _norm(state.start)
    return _Proof(
        bound=lambda epsilon: (r / _sinh(epsilon)) ** 2 + 2 * start / _sinh(epsilon),
        cap=_cap(_norm(state.w - state.start), state.k, _rounding(state) + EPS * (start + _norm(state.w))),
    )


def _second_order(state: second_order.State) -> _Proof:
    start = _norm(state.start)
    cap = _cap(_norm(state.xi - state.start), state.k, _rounding(state) + EPS * (start + _norm(state.xi)))
    return _Proof(bound=lambda epsilon: _over(_spread(state), _sinh(epsilon)), cap=cap)


def _row(state: Row) -> _Proof:
    """Euclid's margin γ for sinh ε, √2 for sinh r"""
    start, steps = _norm(state.start), _norm(state.xi - state.start)
    rounding = (16 + state.k) * EPS * math.sqrt(2) + EPS * (start + _norm(state.xi))
    cap = None if state.k == 0 else steps / state.k + rounding
    if state.a == math.inf:
        return _Proof(bound=lambda gamma: 2 / gamma**2 + 2 * start / gamma, cap=cap)
    return _Proof(bound=lambda gamma: _over(_spread(state), gamma), cap=cap)


def _spread(state: second_order.State | Row) -> float | None:
    """√(λ_max log det(A/a)), or √(λ_max Q) for a = 0: k sinh ε is at most this; None from ξ₁ ≠ 0"""
    d = len(state.factor)
    if state.start.any() or math.isnan(state.q):
        return None
    turned = _turned(state)
    if state.a == 0:
        block = state.factor[: state.rank, : state.rank]
        return math.sqrt(largest_eigenvalue(block, 0.0) * (1 + turned) * quadratic(state)) if state.rank else 0.0
    logs = np.log(np.diag(state.factor))
    log_det = 2 * float(logs.sum()) - d * math.log(state.a)
    rounding = d * turned + 4 * d * EPS * (float(np.abs(logs).sum()) + abs(math.log(state.a)))
    return math.sqrt(largest_eigenvalue(state.factor, state.a) * (1 + turned) * (max(log_det, 0.0) + rounding))


def _over(total: float | None, margin: float) -> float | None:
    return None if total is None else total / margin


def _turned(state: second_order.State | Row) -> float:
    """What k rotations may have done to A, beside its size"""
    return 16 * (state.k + len(state.factor)) * EPS


def quadratic(state: second_order.State | Row) -> float:
    """Q = Σ zᵀA⁺z, outwards; no term is larger than 1"""
    return min(state.q * (1 + len(state.factor) * _turned(state)), float(state.k))


def hinge_bound(row: Row, u: Array, loss: float) -> float | None:
    """k is at most this, if the hinge losses of u sum up to `loss` over all points of the stream; None from ξ₁ ≠ 0"""
    if row.start.any():
        return None
    more = 1 + 64 * EPS * (row.xi.size + row.k)
    if row.a == math.inf:
        length = math.sqrt(2) * _norm(u)
        return ((length + math.sqrt(length**2 + 4 * loss)) / 2) ** 2 * more
    along = float(np.square(row.factor @ u).sum())
    if row.rank < u.size:  # then A is kept in the coordinates of its span, and uᵀAu ≤ λ_max‖u‖²
        block = row.factor[: row.rank, : row.rank]
        along = (largest_eigenvalue(block, 0.0) if row.rank else 0.0) * float(u @ u)
    return (loss + math.sqrt(along * (1 + _turned(row)) * quadratic(row))) * more


def largest_eigenvalue(factor: Array, a: float) -> float:
    """A number that λ_max of A = UᵀU does not exceed, U upper triangular and all of λ ≥ a

    Above EXACT dimensions Lanczos' method guesses from below, and a Cholesky factor of sI − A proves the guess and a
    hundredth, or a little more: d³ operations, a tenth of what the singular values take. Where nothing is proven, the
    trace bounds it, less what the other λ are at least.
    """
    d = len(factor)
    rounding = 1 + 8 * d * d * EPS
    if d <= EXACT:
        return float(np.linalg.norm(factor, 2)) ** 2 * rounding
    trace = (float(np.square(factor).sum()) - (d - 1) * a * (1 - d * EPS)) * rounding
    A = factor.T @ factor
    guess, diagonal = _ritz_value(A), np.diag(A).copy()
    np.negative(A, out=A)
    for more in (1.01, 1.05, 1.25):
        s = more * guess
        np.fill_diagonal(A, s - diagonal)
        if s * rounding < trace and _definite(A):
            return s * rounding
    return trace


def _ritz_value(A: Array) -> float:
    """λ_max of A on the span of x, Ax … A^{STEPS−1}x (Lanczos), x at random, so that no direction is left out"""
    Q, image = np.zeros((STEPS, len(A))), np.random.default_rng(0).standard_normal(len(A))
    for j in range(STEPS):
        before = _norm(image)
        for _ in range(2):  # after the second time orthogonal to the rows before to the last bits
            image -= (Q[:j] @ image) @ Q[:j]
        if _norm(image) <= 1e-10 * before:  # A leads nowhere else
            Q = Q[:j]
            break
        Q[j] = image / _norm(image)
        image = A @ Q[j]
    return float(np.linalg.eigvalsh(Q @ (A @ Q.T))[-1])


def _definite(A: Array) -> bool:
    try:
        np.linalg.cholesky(A)
    except np.linalg.LinAlgError:
        return False
    return True


def _strategic(state: strategic.State) -> _Proof:
    if state.start.any():
        return _Proof(bound=lambda epsilon: None, cap=None)
    r, alpha = radius(state), state.alpha
    sigma = 2 / (1 - float(state.p @ state.p))
    cap = _cap(_norm(state.w), state.k, _rounding(state))
    if state.estimating or leaves_the_ball(state):
        return _Proof(bound=lambda epsilon: None, cap=cap)
    return _Proof(
        bound=lambda epsilon: (corrected_radius(r, alpha) / _sinh(epsilon)) ** 2,
        cap=cap,
        paper_bound=lambda epsilon: ((_sinh(r) + alpha / sigma) / _sinh(epsilon)) ** 2,
    )


def leaves_the_ball(state: strategic.State) -> bool:
    """Whether an agent's move might end beyond the radius limit, d(0,p) + √(r²+α²), so that it stays instead"""
    from_origin = 2 * math.atanh(_norm(state.p))
    return from_origin + math.hypot(radius(state), state.alpha) > RADIUS_LIMIT


def _hyperboloid(state: hyperboloid.State) -> _Proof:
    """H_w* lies within r − ε of the origin once points of both classes were seen, so ‖w*‖² ≤ cosh 2(r−ε)."""
    if not (state.seen_negative and state.seen_positive):
        return _Proof(bound=lambda epsilon: None, cap=None)
    r, start = radius(state), _norm(state.start)
    norm = _norm(state.w - state.start) + state.k * _rounding(state) + EPS * (start + _norm(state.w))

    def steep(epsilon: float) -> float:
        return math.sqrt(math.cosh(2 * max(r - epsilon, 0.0))) / _sinh(epsilon)

    def excess(epsilon: float) -> float:
        return state.k * _sinh(epsilon) - norm * math.sqrt(math.cosh(2 * (r - epsilon)))

    return _Proof(
        bound=lambda epsilon: math.cosh(2 * r) * steep(epsilon) ** 2 + 2 * start * steep(epsilon),
        cap=_largest_not_positive(excess, r),
    )


_PROOFS: dict[type, Callable[[Any], _Proof]] = {
    perceptron.State: _perceptron,
    second_order.State: _second_order,
    strategic.State: _strategic,
    hyperboloid.State: _hyperboloid,
    Row: _row,
}


def _outwards(bound: float | None, state: Binary, epsilon: float) -> float | None:
    """A bound and its rounding: r is good to a few eps·σ_x, and so are ε and their hyperbolic functions beside them; φ
    to a few eps, so that γ is off by as much"""
    if bound is None:
        return None
    if isinstance(state, Row):
        return bound * (1 + 64 * EPS * (state.xi.size + state.k + 1 / max(epsilon, EPS**2)))
    return bound * (1 + 64 * EPS * (1 + math.cosh(_farthest(state))))


def _cap(length: float, k: int, rounding: float) -> float | None:
    """ε ≤ asinh(length/k): k steps, each at least sinh ε along w*, made no more than this"""
    return None if k == 0 else math.asinh(length / k + rounding)


def _rounding(state: Lifted) -> float:
    """How far rounding can have moved each step: z is good to a few eps·σ_x·‖z‖, with σ_x ≤ 1 + cosh(d(0,p) + r)"""
    r = radius(state)
    return 16 * EPS * (1 + math.cosh(_farthest(state))) * _sinh(r) + state.k * EPS * _sinh(r)


def _farthest(state: Lifted) -> float:
    """How far from 0 a point of the stream may be: d(0,p) + r"""
    p = np.zeros(1) if isinstance(state, hyperboloid.State) else state.p
    return 2 * math.atanh(_norm(p)) + radius(state)


def _largest_not_positive(increasing: Callable[[float], float], high: float) -> float:
    """The largest ε in [0, high] at which an increasing function is not yet positive, from above."""
    low = 0.0
    if increasing(high) <= 0:
        return high
    while high - low > 4 * EPS * high:
        middle = (low + high) / 2
        low, high = (low, middle) if increasing(middle) > 0 else (middle, high)
    return high


def _norm(x: Array) -> float:
    return float(np.sqrt(np.vecdot(x, x)))


def _at(bound: Callable[[float], float | None], epsilon: float) -> float | None:
    """A bound at so small a margin that no float holds it is ∞"""
    try:
        return bound(epsilon)
    except (OverflowError, ZeroDivisionError):
        return math.inf


def _sinh(x: float) -> float:
    """sinh, and ∞ beyond what a float holds: such a margin is disproved, such a bound says nothing"""
    return math.sinh(x) if x < 700 else math.inf
