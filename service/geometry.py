"""The Poincaré ball {x : c‖x‖² < 1} of curvature −c, in plain NumPy and float64.

Every function works on the last axis and broadcasts over the leading ones; a row of the result depends,
bit for bit, on that row of the arguments alone. Formulas are stated for c = 1. Any other curvature is
reached by scaling: x ↦ √c·x maps the ball onto the unit ball, lengths divide by √c.

Each formula is written in the form that survives near the border: with λ = 2/(1−‖x‖²), results are good to
a small multiple of eps·λ where the textbook forms lose eps·λ². (A point that was computed, rounded and mapped
back, as in log∘exp, loses eps·λ_p·λ_x: its own rounding is that far in hyperbolic length.)

Nothing is clipped. The functions trust their arguments to be points of the ball: `require_ball` is the gate.

All of the paper's geometry is here. The service itself needs neither `mobius_scale` (the ⊗ of the paper's geodesic,
which `geodesic` computes without it), `parallel_transport` (its figure of a changed reference point) nor `to_klein`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.errors import DimensionMismatch, InvalidParameter, NonFinite, NotANumber, PointOutsideBall

Array = NDArray[np.float64]

#: Points further than this from the origin (in the unit ball) are refused: the formulas decay out there. The norm is
#: 0.9999904; libraries that clip do so at 0.99999, a radius of 12.21, or further inside.
RADIUS_LIMIT = 12.25
#: The border itself is outside, however large a radius is allowed.
BELOW_ONE = math.nextafter(1.0, 0.0)


def mobius_add(x: ArrayLike, y: ArrayLike, *, c: float = 1.0) -> Array:
    """x ⊕ y = (‖s‖² x + (1−‖x‖²) s) / (‖s‖² + (1−‖x‖²)(1−‖y‖²)),  s = x + y

    Equal to Ungar's (1+2⟨x,y⟩+‖y‖²)x + (1−‖x‖²)y over 1+2⟨x,y⟩+‖x‖²‖y‖², but no term cancels.
    """
    root = _sqrt_curvature(c)
    x, y = _array(x) * root, _array(y) * root
    s = x + y
    ss, xx, yy = _dot(s, s), _dot(x, x), _dot(y, y)
    return (ss * x + (1 - xx) * s) / (ss + (1 - xx) * (1 - yy)) / root


def mobius_scale(r: ArrayLike, x: ArrayLike, *, c: float = 1.0) -> Array:
    """r ⊗ x = tanh(r·artanh‖x‖) x/‖x‖,  r ⊗ 0 = 0"""
    root = _sqrt_curvature(c)
    x = _array(x) * root
    norm = np.sqrt(_dot(x, x))
    length = np.tanh(_array(r)[..., None] * np.arctanh(norm))
    return length * _unit(x, norm) / root


def conformal_factor(x: ArrayLike, *, c: float = 1.0) -> Array:
    """σ_x = 2/(1−‖x‖²)"""
    x = _array(x) * _sqrt_curvature(c)
    return np.asarray(2 / (1 - _dot(x, x)))[..., 0]


def distance(x: ArrayLike, y: ArrayLike, *, c: float = 1.0) -> Array:
    """d(x, y) = 2 asinh(‖x−y‖ / √((1−‖x‖²)(1−‖y‖²)))

    The arcosh form loses everything for near points; this one loses nothing.
    """
    root = _sqrt_curvature(c)
    return (2 * np.arcsinh(_half_sinh(_array(x) * root, _array(y) * root)) / root)[..., 0]


def lift(p: ArrayLike, x: ArrayLike, *, c: float = 1.0) -> Array:
    """z = 2u/(1−‖u‖²), u = (−p)⊕x;  that is  z = 2(s − ‖s‖² p/(1−‖p‖²)) / (1−‖x‖²),  s = x − p

    The spatial part of x on the hyperboloid once p has been moved to the origin: ‖z‖ = sinh d(p,x).
    It is the paper's η·log_p(x); the perceptrons are Euclidean in it. Dimensionless, whatever c.
    """
    root = _sqrt_curvature(c)
    p, x = _array(p) * root, _array(x) * root
    s = x - p
    return 2 * (s - _dot(s, s) * p / (1 - _dot(p, p))) / (1 - _dot(x, x))


def log_map(p: ArrayLike, x: ArrayLike, *, c: float = 1.0) -> Array:
    """v = log_p(x) = z·(r/sinh r)/σ_p,  r = d(p,x),  z = lift(p, x);  0 at x = p"""
    root = _sqrt_curvature(c)
    h = _half_sinh(_array(p) * root, _array(x) * root)
    sigma = conformal_factor(p, c=c)[..., None]
    return lift(p, x, c=c) / (sinh_ratio(h) * sigma * root)


def exp_map(p: ArrayLike, v: ArrayLike, *, c: float = 1.0) -> Array:
    """exp_p(v) = p ⊕ tanh(σ_p‖v‖/2) v/‖v‖;  p at v = 0"""
    root = _sqrt_curvature(c)
    v = _array(v) * root
    norm = np.sqrt(_dot(v, v))
    sigma = conformal_factor(p, c=c)[..., None]
    return mobius_add(p, np.tanh(sigma * norm / 2) * _unit(v, norm) / root, c=c)


def geodesic(x: ArrayLike, y: ArrayLike, t: ArrayLike, *, c: float = 1.0) -> Array:
    """γ(t) on the geodesic with γ(0) = x and γ(1) = y; t outside [0, 1] goes on along it

    On the hyperboloid γ = A·h_x + B·h_y with D = d(x,y), A = sinh((1−t)D)/sinh D, B = sinh(tD)/sinh D;
    back on the ball  γ = (A σ_x x + B σ_y y) / (1 + A(σ_x−1) + B(σ_y−1)).
    """
    root = _sqrt_curvature(c)
    x, y, t = _array(x) * root, _array(y) * root, _array(t)[..., None]
    D = 2 * np.arcsinh(_half_sinh(x, y))
    A, B = (1 - t) * _sinhc((1 - t) * D) / _sinhc(D), t * _sinhc(t * D) / _sinhc(D)
    sigma_x, sigma_y = 2 / (1 - _dot(x, x)), 2 / (1 - _dot(y, y))
    return (A * sigma_x * x + B * sigma_y * y) / (1 + A * (sigma_x - 1) + B * (sigma_y - 1)) / root


def midpoint(x: ArrayLike, y: ArrayLike, *, c: float = 1.0) -> Array:
    """γ(½) on the geodesic from x to y"""
    return geodesic(x, y, 0.5, c=c)


def signed_distance(p: ArrayLike, w: ArrayLike, x: ArrayLike, *, c: float = 1.0) -> Array:
    """asinh(⟨w,z⟩/‖w‖), z = lift(p, x): the distance of x to the hyperplane H_{w,p}, positive on w's side

    With w = 0 there is no hyperplane and the value is 0.
    """
    w = _array(w)
    w = _unit(w, np.abs(w).max(axis=-1, keepdims=True))  # only the direction counts, and its squares must not overflow
    return (np.arcsinh(_dot(_unit(w, np.sqrt(_dot(w, w))), lift(p, x, c=c))) / _sqrt_curvature(c))[..., 0]


def parallel_transport(p: ArrayLike, q: ArrayLike, v: ArrayLike, *, c: float = 1.0) -> Array:
    """P_{p→q}(v) = (σ_p/σ_q) gyr[q, −p] v, along the geodesic from p to q

    The gyration is the rotation by the rotor (1−⟨q,p⟩) − b, b = q∧p = s∧p, s = q − p:
    gyr v = v + (2/D)(b·(b·v) − (1−⟨q,p⟩) b·v),  b·v = s⟨p,v⟩ − p⟨s,v⟩,  D = ‖s‖² + (1−‖p‖²)(1−‖q‖²),
    and 1−⟨q,p⟩ = (‖s‖² + (1−‖p‖²) + (1−‖q‖²))/2 cancels nothing.
    """
    root = _sqrt_curvature(c)
    p, q, v = _array(p) * root, _array(q) * root, _array(v)
    s = q - p
    ss, pp, qq = _dot(s, s), 1 - _dot(p, p), 1 - _dot(q, q)
    bv = s * _dot(p, v) - p * _dot(s, v)
    bbv = s * _dot(p, bv) - p * _dot(s, bv)
    return (v + (bbv - (ss + pp + qq) / 2 * bv) * (2 / (ss + pp * qq))) * (qq / pp)


def to_hyperboloid(x: ArrayLike, *, c: float = 1.0) -> Array:
    """h = (1+‖x‖², 2x)/(1−‖x‖²), with −h₀² + ‖h_s‖² = −1/c

    (The paper's appendix prints a map onto a sphere instead.)
    """
    root = _sqrt_curvature(c)
    x = _array(x) * root
    xx = _dot(x, x)
    return np.concatenate([1 + xx, 2 * x], axis=-1) / (1 - xx) / root


def from_hyperboloid(h: ArrayLike, *, c: float = 1.0) -> Array:
    """x = h_s/(1+h₀)"""
    h = _array(h)
    return np.asarray(h[..., 1:] / (1 + _sqrt_curvature(c) * h[..., :1]))


def to_klein(x: ArrayLike, *, c: float = 1.0) -> Array:
    """k = 2x/(1+‖x‖²): geodesics become straight lines"""
    x, root = _array(x), _sqrt_curvature(c)
    return np.asarray(2 * x / (1 + _dot(root * x, root * x)))


def from_klein(k: ArrayLike, *, c: float = 1.0) -> Array:
    """x = k/(1+√(1−‖k‖²))"""
    k, root = _array(k), _sqrt_curvature(c)
    return np.asarray(k / (1 + np.sqrt(1 - _dot(root * k, root * k))))


def from_halfspace(h: ArrayLike, *, c: float = 1.0) -> Array:
    """x = (2u, ‖u‖²+t²−1)/(‖u‖²+(t+1)²) for h = (u, t), t > 0: the upper half-space, whose (0, 1) is the origin

    The half-space knows no length: whatever c, its metric is (du² + dt²)/(c·t²). Numbers above 1e100, where the squares
    would overflow, are far beyond any radius limit: they are read as 1e100, which is the same point of the border.
    """
    h = np.clip(_array(h), -1e100, 1e100)
    u, t = h[..., :-1], h[..., -1:]
    uu = _dot(u, u)
    x = np.concatenate([2 * u, uu + (t - 1) * (t + 1)], axis=-1) / (uu + (t + 1) ** 2)
    return np.asarray(x / _sqrt_curvature(c))


def from_spatial(v: ArrayLike, *, c: float = 1.0) -> Array:
    """x = v/(1+√(1+‖v‖²)): the point of the ball over (√(1+‖v‖²), v) on the hyperboloid, all of ℝᵈ onto the ball

    It is at the distance asinh‖v‖, and lift(0, x) = v: what was linear in v stays linear.
    """
    v, root = _array(v), _sqrt_curvature(c)
    large = np.abs(v).max(axis=-1, keepdims=True, initial=0)
    norm = large * np.sqrt(_dot(_unit(v, large), _unit(v, large)))  # squares of large numbers must not overflow
    return np.asarray(v / (1 + np.hypot(1, root * norm)))


def hemisphere(x: ArrayLike, *, c: float = 1.0) -> Array:
    """φ = (1, 2x/(1+‖x‖²), (1−‖x‖²)/(1+‖x‖²)):  (h₀, h_s, 1)/h₀ for the point h of the hyperboloid over x

    ‖φ‖² = 2 wherever x is, and nothing divides by 1−‖x‖²: good to a few eps up to the rim. {⟨w,φ⟩ = 0} are all spheres
    of the geometry: geodesics, hypercycles, horocycles, circles. Dimensionless, whatever c.
    """
    x = _array(x) * _sqrt_curvature(c)
    xx = _dot(x, x)
    return np.concatenate([np.ones_like(xx), 2 * x / (1 + xx), (1 - xx) / (1 + xx)], axis=-1)


def sinh_ratio(h: ArrayLike) -> Array:
    """sinh r / r from h = sinh(r/2):  h√(1+h²)/asinh h,  1 at h = 0"""
    h = _array(h)
    return np.divide(h * np.sqrt(1 + h * h), np.arcsinh(h), out=np.ones_like(h), where=h != 0)


def require_ball(X: ArrayLike, d: int | None = None, *, c: float = 1.0, radius: float = RADIUS_LIMIT) -> Array:
    """X as an n×d array of points within `radius` of the origin, C-contiguous; one point becomes one row.

    `radius` is measured in the unit ball (c = 1): a point is taken iff √c‖x‖ ≤ tanh(radius/2).
    The first row that cannot be taken is named by the exception, with its norm and the limit.
    """
    if not radius > 0:
        raise InvalidParameter("radius", radius, "a positive number")
    X = _points(X, d)
    if d is not None and X.shape[1] != d:
        raise DimensionMismatch(expected=d, got=X.shape[1])
    limit = norm_limit(c, radius)
    with np.errstate(over="ignore"):
        squares = np.vecdot(X, X)
    if squares.size and not squares.max() <= limit * limit:
        refuse_outside(X, squares, limit, c)
    return X


def norm_limit(c: float = 1.0, radius: float = RADIUS_LIMIT) -> float:
    """The largest norm of a point within `radius` of the origin, which is measured in the unit ball"""
    return min(math.tanh(radius / 2), BELOW_ONE) / _sqrt_curvature(c)


def refuse_outside(X: Array, squares: Array, limit: float, c: float) -> None:
    """Raise for the first row of X that is not finite or beyond the limit; `squares`: ‖x‖², row by row."""
    index = int(np.argmin(squares <= limit * limit))
    row = X[index]
    if not np.isfinite(row).all():
        raise NonFinite(index, float(row[~np.isfinite(row)][0]))
    largest = math.sqrt(float(squares[np.isfinite(squares)].max(initial=0.0)))
    fitting = c * (limit / largest) ** 2 if largest > limit else None  # the curvature of a ball that holds every point
    raise PointOutsideBall(index, float(math.hypot(*row.tolist())), limit, fitting)


def _points(X: ArrayLike, d: int | None) -> Array:
    """An n×d float64 array out of what the caller gave: no strings, no booleans, no ragged rows."""
    if isinstance(X, np.ndarray) and X.dtype == np.float64 and X.ndim == 2:
        return np.ascontiguousarray(X)
    try:
        given: NDArray[Any] = np.asarray(X)
    except ValueError:
        raise NotANumber("the points do not form rows of equal length", value=X) from None
    if given.shape == (0,):
        return np.empty((0, d or 0))
    if given.ndim == 2 and given.shape[1] == 0:
        raise NotANumber("a point has at least one coordinate", value=given.shape)
    if not isinstance(X, np.ndarray) and _holds_boolean(X):
        raise NotANumber("points hold booleans, not real numbers", value=X)
    if given.dtype.kind not in "iuf" and given.size:
        raise NotANumber(f"points hold {given.dtype} values, not real numbers", value=given.flat[0])
    if given.ndim not in (1, 2):
        raise NotANumber(f"points form an array of {given.ndim} axes, not rows of coordinates", value=given.shape)
    return np.ascontiguousarray(np.atleast_2d(given), dtype=np.float64)


def _holds_boolean(value: Any) -> bool:
    """NumPy would read True among numbers as 1."""
    return isinstance(value, bool) or (isinstance(value, (list, tuple)) and any(map(_holds_boolean, value)))


def _array(x: ArrayLike) -> Array:
    """C-contiguous: a strided row may be summed in another order than a contiguous one."""
    return np.asarray(x, dtype=np.float64, order="C")


def _dot(x: Array, y: Array) -> Array:
    """⟨x,y⟩ along the last axis, kept. vecdot's rows are independent, bit for bit; x @ y's are not."""
    return np.asarray(np.vecdot(x, y))[..., None]


def _unit(x: Array, norm: Array) -> Array:
    """x/‖x‖, and 0 for 0"""
    return np.divide(x, norm, out=np.zeros_like(x), where=norm != 0)


def _sinhc(x: Array) -> Array:
    """sinh(x)/x, 1 at 0"""
    return np.divide(np.sinh(x), x, out=np.ones_like(x), where=x != 0)


def _half_sinh(x: Array, y: Array) -> Array:
    """sinh(d(x,y)/2) = ‖x−y‖/√((1−‖x‖²)(1−‖y‖²)) in the unit ball"""
    s = x - y
    return np.sqrt(_dot(s, s) / ((1 - _dot(x, x)) * (1 - _dot(y, y))))


def _sqrt_curvature(c: float) -> float:
    """√c. Curvature 0 is Euclidean space: any Euclidean library serves it better."""
    if not 0 < c < math.inf:
        raise InvalidParameter("curvature c", c, "a positive number")
    return math.sqrt(c)
