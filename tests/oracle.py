"""The ball's textbook formulas at 50 digits: the oracle of tests/test_geometry.py.

They are Ungar's and Ganea et al.'s, with c written out, and share no form with service/geometry.py: there
no term may cancel, here 50 digits pay for every cancellation. A point is an array of mpf.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpmath import MPContext
from numpy.typing import ArrayLike, NDArray

mp = MPContext()
mp.dps = 50


def rows(f: Callable[..., Any], *args: ArrayLike, c: float) -> NDArray[np.float64]:
    """f of each row of the arguments, rounded to float64."""
    exact = [_exact(a) for a in args]
    return np.array([f(*row, mp.mpf(c)) for row in zip(*exact, strict=True)]).astype(np.float64)


def mobius_add(x: Any, y: Any, c: Any) -> Any:
    """x ⊕ y = ((1+2c⟨x,y⟩+c‖y‖²)x + (1−c‖x‖²)y) / (1+2c⟨x,y⟩+c²‖x‖²‖y‖²)"""
    xx, xy, yy = c * (x @ x), c * (x @ y), c * (y @ y)
    return ((1 + 2 * xy + yy) * x + (1 - xx) * y) / (1 + 2 * xy + xx * yy)


def mobius_scale(r: Any, x: Any, c: Any) -> Any:
    norm = mp.sqrt(c * (x @ x))
    return x * mp.tanh(r * mp.atanh(norm)) / norm if norm else x


def conformal_factor(x: Any, c: Any) -> Any:
    return 2 / (1 - c * (x @ x))


def distance(x: Any, y: Any, c: Any) -> Any:
    """d(x, y) = 2/√c · artanh(√c‖(−x)⊕y‖)"""
    u = mobius_add(-x, y, c)
    return 2 / mp.sqrt(c) * mp.atanh(mp.sqrt(c * (u @ u)))


def lift(p: Any, x: Any, c: Any) -> Any:
    """z = 2√c u/(1−c‖u‖²), u = (−p)⊕x"""
    u = mobius_add(-p, x, c)
    return 2 * mp.sqrt(c) * u / (1 - c * (u @ u))


def log_map(p: Any, x: Any, c: Any) -> Any:
    """log_p(x) = 2/(√c σ_p) · artanh(√c‖u‖) u/‖u‖, u = (−p)⊕x"""
    u = mobius_add(-p, x, c)
    norm = mp.sqrt(c * (u @ u))
    return 2 / conformal_factor(p, c) * mp.atanh(norm) / norm * u if norm else u


def exp_map(p: Any, v: Any, c: Any) -> Any:
    """exp_p(v) = p ⊕ tanh(√c σ_p‖v‖/2) v/(√c‖v‖)"""
    norm = mp.sqrt(c * (v @ v))
    return mobius_add(p, mp.tanh(conformal_factor(p, c) * norm / 2) / norm * v, c) if norm else p


def geodesic(x: Any, y: Any, t: Any, c: Any) -> Any:
    """γ(t) = x ⊕ t⊗((−x)⊕y)"""
    return mobius_add(x, mobius_scale(t, mobius_add(-x, y, c), c), c)


def midpoint(x: Any, y: Any, c: Any) -> Any:
    return geodesic(x, y, mp.mpf(1) / 2, c)


def signed_distance(p: Any, w: Any, x: Any, c: Any) -> Any:
    """1/√c · asinh(2√c⟨u,w⟩ / ((1−c‖u‖²)‖w‖)), u = (−p)⊕x"""
    u = mobius_add(-p, x, c)
    return mp.asinh(2 * mp.sqrt(c) * (u @ w) / ((1 - c * (u @ u)) * mp.sqrt(w @ w))) / mp.sqrt(c)


def parallel_transport(p: Any, q: Any, v: Any, c: Any) -> Any:
    """(σ_p/σ_q) gyr[q,−p]v, where gyr[a,b]v = −(a⊕b) ⊕ (a⊕(b⊕v)) is linear: v is first brought into the ball"""
    size = 2 * mp.sqrt(c * (v @ v))
    moved = mobius_add(q, mobius_add(-p, v / size, c), c)
    turned = size * mobius_add(-mobius_add(q, -p, c), moved, c)
    return conformal_factor(p, c) / conformal_factor(q, c) * turned


def to_hyperboloid(x: Any, c: Any) -> Any:
    """h = (1+c‖x‖², 2√c x) / (√c (1−c‖x‖²))"""
    xx = c * (x @ x)
    return np.append(2 * x / (1 - xx), (1 + xx) / (1 - xx) / mp.sqrt(c))[np.r_[-1, : len(x)]]


def from_hyperboloid(h: Any, c: Any) -> Any:
    """x = h_s/(1+√c h₀)"""
    return h[1:] / (1 + mp.sqrt(c) * h[0])


def to_klein(x: Any, c: Any) -> Any:
    """k = 2x/(1+c‖x‖²)"""
    return 2 * x / (1 + c * (x @ x))


def from_klein(k: Any, c: Any) -> Any:
    """x = k/(1+√(1−c‖k‖²))"""
    return k / (1 + mp.sqrt(1 - c * (k @ k)))


def hemisphere(x: Any, c: Any) -> Any:
    """φ = (√c h₀, √c h_s, 1)/(√c h₀), h = to_hyperboloid(x)"""
    h = mp.sqrt(c) * to_hyperboloid(x, c)
    return np.append(h, mp.mpf(1)) / h[0]


def sinh_ratio(h: Any, c: Any) -> Any:
    """sinh r / r, h = sinh(r/2); no c in it"""
    r = 2 * mp.asinh(h)
    return mp.sinh(r) / r if r else mp.mpf(1)


def _exact(a: ArrayLike) -> NDArray[Any]:
    """float64 to mpf, digit for digit."""
    return np.frompyfunc(mp.mpf, 1, 1)(np.asarray(a, dtype=np.float64))  # type: ignore[no-any-return]
