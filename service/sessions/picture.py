"""The Poincaré disk as an SVG document: points, boundary or regions, band. Plain values in, text out.

A boundary is a geodesic {x : [N,h] = 0}, h = to_hyperboloid(x), and its normal N is one formula for all learners:

    N = (σ_p⟨w,p⟩, w + σ_p⟨w,p⟩ p)   through p, orthogonal to w: [N,h] = ⟨w, lift(p,x)⟩ and [N,N] = ‖w‖²
    N = w                            hyperboloid: there is no boundary unless [w,w] > 0

More than two classes, or a learner without one boundary, are shown as the regions of their decisions (regions.py); two
classes on hemisphere coordinates by the circle that their boundary is.

In the disk it is 2⟨N_s,x⟩ = N₀(1+‖x‖²): an arc of the circle about N_s/N₀ that meets the unit circle at right angles,
at the angles arg N_s ± arccos(N₀/‖N_s‖); a diameter where N₀ = 0. An SVG arc draws that exactly.

The strategic threshold, ⟨w,v⟩/‖w‖ = α/σ_p, is a straight line in the tangent space at p and no geodesic in the disk. It
has the ideal points of the geodesic through p; it is sampled until no chord is further than TOLERANCE from it.

More than two dimensions are projected: v = log_p(x) onto its first two principal directions about p, and the plane they
span is the disk, p in its centre. A hyperplane leaves a trace in it. One dimension is the horizontal diameter; each
class is drawn a little off it, at a constant distance, and a boundary is the geodesic that crosses it there.
"""

from __future__ import annotations

import math
import re
import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import ArrayLike

from service import geometry as g
from service.geometry import Array
from service.sessions.palette import COLOURS, ON_DARK, SHAPES, colour, shape, striped
from service.sessions.regions import Curve, Decide, Indices, Plane, curve, decider, forms, normal, outlines

WIDTH, HEIGHT = 976, 680  # or higher, if the text needs it
RADIUS, CENTRE, PANEL = 312, 340, 696  # the disk's radius, its middle both ways, and where the text begins
TOLERANCE = 0.05  # pixels between the threshold and what is drawn of it
STRAIGHT = 1e4  # an arc whose radius is this many disks leaves its chord by less than 0.02 pixels
MARGIN, COLUMN = 40, 248  # above and below the text; where its numbers end
RINGS = 5
FADING = 200  # points, from which on older ones are paler:
AGES = (0.95, 0.75, 0.55, 0.4)  # opacity, newest first
LEGEND = 12  # classes it has room for


@dataclass(frozen=True)
class _View:
    """What there is to draw, in the unit disk."""

    points: Array  # n×2
    normals: Array  # of a geodesic: one row, time first; not spacelike: nothing to draw
    references: Array  # m×2
    threshold: Array | None = None  # a polyline from one ideal point to the other
    note: str = ""
    circle: Curve | None = None  # two classes on hemisphere coordinates
    form: Array | None = None  # of it
    decide: Decide | None = None  # which class each point of the disk would get


def disk(
    *,
    algorithm: str,
    curvature: float,
    labels: Sequence[str | int],
    references: ArrayLike | None,
    weights: ArrayLike | None,
    threshold: float | None,
    X: Array,
    indices: Indices,
    counts: Mapping[str, object],
    title: str | None = None,
    features: str | None = None,
    classes: Sequence[Mapping[str, Any]] | None = None,
    members: Sequence[Mapping[str, Any]] | None = None,
) -> str:
    """The picture of a session. All but X, indices, counts and title are what `GET /model` publishes.

    `references`: the reference point, one a class, or None. `weights`: d numbers (hyperboloid: d+1, hemisphere: d+2),
    K rows of them, or None. `threshold`: α/σ_p, strategic only. X is n×d, the oldest point first; `indices` are its
    classes.
    """
    root, d = math.sqrt(curvature), X.shape[1]
    W = np.zeros((1, d)) if weights is None else np.atleast_2d(np.asarray(weights, dtype=np.float64))
    W = W / (np.abs(W).max() or 1.0)  # only directions count, and squares must not overflow
    P = np.zeros((0, d)) if references is None else root * np.atleast_2d(np.asarray(references, dtype=np.float64))
    alpha = None if threshold is None or not W.any() else threshold * root * float(g.conformal_factor(P[0]))
    features = features or ("tangent" if threshold is not None else "lift" if len(P) else "hyperboloid")
    model = {
        **{"weights": None if weights is None else W, "reference": references, "curvature": curvature},
        **{"labels": labels, "features": features, "classes": classes, "members": members},
    }
    view = _view(X * root, indices, P, W, alpha, model)

    name = _clean(title or "Poincaré disk")
    kind = algorithm.replace("_", "-") + " perceptron" * (algorithm in ("second_order", "strategic", "hyperboloid"))
    space = f"{d:,} dimension{'s' * (d > 1)}, curvature −{curvature:.4g}"
    notes = [
        *_silence(W, view, labels, features == "hyperboloid"),
        *filter(None, [view.note]),
        *["Older points are paler."] * (len(X) >= FADING),
    ]
    rows = [
        *_heading(name, kind, space),
        *_legend(labels, indices),
        *_key(view, alpha, root, projected=d > 2),
        *_counts({**counts, "points drawn": len(X)}),
        *_notes(notes),
    ]
    told = [f"{len(X):,} points of {len(labels):,} classes in the Poincaré disk.", f"{kind}, {space}.", *notes]
    height = max(HEIGHT, 2 * MARGIN + sum(row for row, _ in rows))
    size = f'viewBox="0 0 {WIDTH} {height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title desc">',
            f'<title id="title">{escape(name)}</title>',
            f'<desc id="desc">{escape(" ".join(told))}</desc>',
            _STYLE,
            f'<rect class="ground" width="{WIDTH}" height="{height}" rx="14"/>',
            *_ground(view, d),
            *_marks(view.points, indices, len(labels)),
            *_lines(view),
            *_panel(rows),
            "</svg>\n",
        ]
    )


# ------------------------------------------------------------------------------------- geometry


def _view(X: Array, indices: Indices, P: Array, W: Array, alpha: float | None, model: Mapping[str, Any]) -> _View:
    """All in the unit ball, brought into the disk"""
    d, K = X.shape[1], len(model["labels"])
    N = np.zeros((0, d + 1))
    if K == 2 and model["weights"] is not None and model["features"] != "hemisphere":
        N = normal(W[0], P[0])[None] if len(P) else W
    if d == 1:
        plane = Plane(np.array([[1.0], [0.0]]), line=True)
        return _decided(_diameter(X, indices, P, W, N, alpha, K), plane, model)
    if d > 2:
        flat, E = _projection(X, P, W, N, alpha)
        return flat if E is None else _decided(flat, Plane(E, centred=len(P) == 1), model)
    flat = _View(X, N, P, None if alpha is None else _tangent_line(P[0], W[0], alpha))
    return _decided(flat, Plane(np.eye(2)), model)


def _decided(view: _View, plane: Plane, model: Mapping[str, Any]) -> _View:
    """With the circle or the regions, where it is not a geodesic that decides"""
    if len(view.normals):
        return view
    if model["weights"] is not None and len(model["weights"]) == 1 and np.any(model["weights"]):
        [form] = forms(model, plane)
        return replace(view, circle=curve(form), form=form)
    return replace(view, decide=decider(model, plane))


def _diameter(X: Array, indices: Indices, P: Array, W: Array, N: Array, alpha: float | None, K: int) -> _View:
    """The classes below and above the line in turn, at constant distances from it"""
    off = np.zeros((K, 2))
    off[:, 1] = np.tanh(0.08 * (1 + np.arange(K) // 2)) * np.where(np.arange(K) % 2, 1, -1)
    line = None
    if alpha is not None:
        crossing = g.exp_map(P[0], alpha * np.sign(W[0]) / g.conformal_factor(P[0]))
        line = _tangent_line(_wide(crossing), _wide(W[0]), 0.0)
    note = "One dimension: the horizontal diameter. The classes stand a little off it."
    return _View(g.mobius_add(_wide(X), off[indices]), _wide(N), _wide(P), line, note)


def _projection(X: Array, P: Array, W: Array, N: Array, alpha: float | None) -> tuple[_View, Array | None]:
    """v = log_q(x) in its two principal directions E: the rest of v is lost, and every hyperplane becomes its trace"""
    d = X.shape[1]
    if not len(X):
        note = "Without points there is no plane to project on."
        return _View(np.zeros((0, 2)), np.zeros((len(N), 3)), np.zeros((0, 2)), note=note), None
    q = P[0] if len(P) == 1 else np.zeros(d)
    V = g.log_map(q, np.concatenate([X, P])) * g.conformal_factor(q) / 2
    E, kept = _principal(V[: len(X)])
    flat = g.exp_map(np.zeros(2), V @ E.T)
    seen = [[0.0, *w] for w in W[: len(N)]] if len(P) == 1 else N  # from q
    traces = np.array([[n[0], *_within(E, np.array(n[1:]))] for n in seen]).reshape(-1, 3)
    line = None
    if alpha is not None and (across := _within(E, W[0])).any():
        line = _tangent_line(np.zeros(2), across, alpha * float(np.linalg.norm(W[0]) / np.linalg.norm(across)))
    middle = "p" if len(P) == 1 else "the origin"
    note = (
        f"A projection of {d:,} dimensions on the two principal directions about {middle}:"
        f" they keep {kept:.0%} of the spread. The line is the boundary's trace in that plane;"
        " points off the plane may be on its other side."
    )
    return _View(flat[: len(X)], traces, flat[len(X) :], line, note), E


def _within(E: Array, w: Array) -> Array:
    """w in the plane of E; nothing, if no more than rounding is left of it"""
    across = E @ w
    return np.asarray(across * (np.linalg.norm(across) > 1e-9 * np.linalg.norm(w)))


def _principal(V: Array) -> tuple[Array, float]:
    """The two directions that keep most of Σ‖v‖², and their share of it; by subspace iteration, for d may be large"""
    d = V.shape[1]
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((d, min(d, 12))))[0]
    for _ in range(8):
        basis = np.linalg.qr(V.T @ (V @ basis))[0]
    _, lengths, turn = np.linalg.svd(np.linalg.qr(V @ basis)[1])
    E = turn[:2] @ basis.T
    E *= np.where(E[[0, 1], np.abs(E).argmax(axis=1)] < 0, -1, 1)[:, None]
    total = float(np.vdot(V, V))
    return E, float((lengths[:2] ** 2).sum()) / total if total else 1.0


def _tangent_line(p: Array, w: Array, alpha: float) -> Array:
    """exp_p of {v : ⟨w,v⟩/‖w‖ = α/σ_p} as a polyline, from the ideal point on w's right to that on its left

    v = (α n + tan φ n⊥)/σ_p, −π/2 ≤ φ ≤ π/2: even steps of φ stay visible both near p and near the rim.
    """
    n = w / np.linalg.norm(w)
    turned, sigma = np.array([-n[1], n[0]]), g.conformal_factor(p)

    def at(phi: Array) -> Array:
        return g.exp_map(p, (alpha * n + np.tan(phi)[:, None] * turned) / sigma)

    return _sampled(at, np.linspace(-math.pi / 2, math.pi / 2, 65))


def _sampled(at: Callable[[Array], Array], t: Array) -> Array:
    """Points of a curve, so dense that it leaves no chord by more than TOLERANCE in the middle of a step"""
    while True:
        ends, half = at(t), (t[1:] + t[:-1]) / 2
        chord, away = np.diff(ends, axis=0), at(half) - ends[:-1]
        along = np.clip(np.vecdot(away, chord) / np.maximum(np.vecdot(chord, chord), 1e-30), 0, 1)
        far = RADIUS * np.linalg.norm(away - along[:, None] * chord, axis=1) > TOLERANCE
        if not far.any():
            return ends
        t = np.sort(np.concatenate([t, half[far]]))


def _wide(x: Array) -> Array:
    """One dimension in the plane: a zero more"""
    return np.concatenate([x, np.zeros_like(x[..., :1])], axis=-1)


def _spacelike(N: Array) -> bool:
    return bool(np.linalg.norm(N[1:]) > abs(N[0]))


# -------------------------------------------------------------------------------------- drawing


def _ground(view: _View, d: int) -> Iterator[str]:
    """The disk; of two classes each side in its tint, the band hatched; circles at distances 1, 2, … from p"""
    whole = f'cx="{CENTRE}" cy="{CENTRE}" r="{RADIUS}"'
    yield f'<circle class="disk" {whole}/>'
    if len(view.normals) == 1 and _spacelike(view.normals[0]):
        geodesic = side = _side(_arc(view.normals[0]), *_ideal(view.normals[0]))
        if view.threshold is not None:
            side = _side(_polyline(view.threshold), view.threshold[0], view.threshold[-1])
        disk = f"M{CENTRE - RADIUS} {CENTRE}a{RADIUS} {RADIUS} 0 1 1 0 .01Z"
        yield f'<path class="c0 tint" d="{disk}{side}"/><path class="c1 tint" d="{side}"/>'
        if view.threshold is not None:
            yield f'<path id="band" class="band" d="{geodesic}{side}"/>'
    elif view.form is not None:
        yield from _halves(view.form, view.circle)
    elif view.decide is not None:
        yield from _regions(view.decide)
    p = view.references[0] if len(view.references) == 1 else np.zeros(2)
    pp = float(np.vecdot(p, p))
    for rho in range(1, RINGS + 1):
        t = math.tanh(rho / 2)
        x, y = _place(p * (1 - t * t) / (1 - t * t * pp))
        yield f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS * t * (1 - pp) / (1 - t * t * pp):.1f}"/>'
    if d == 1:
        yield f'<path class="ring" d="M{CENTRE - RADIUS} {CENTRE}h{2 * RADIUS}"/>'


def _halves(form: Array, found: Curve | None) -> Iterator[str]:
    """Two classes on hemisphere coordinates: each side of the circle in its tint"""
    whole = f"M0 0H{2 * CENTRE}V{2 * CENTRE}H0Z"
    if found is None:
        yield f'<path class="c{int(form[3] >= 0)} tint" clip-path="url(#rim)" d="{whole}"/>'
        return
    within = 1 if math.isinf(found.radius) or form[0] < 0 else 0
    side = _enclosed(found)
    yield f'<path class="c{1 - within} tint" clip-path="url(#rim)" d="{whole}{side}"/>'
    yield f'<path class="c{within} tint" clip-path="url(#rim)" d="{side}"/>'


def _enclosed(found: Curve) -> str:
    """A circle; of a line the half plane on its positive side"""
    if found.radius < STRAIGHT:
        x, y = _place(found.centre)
        r = RADIUS * found.radius
        return f"M{x - r:.2f} {y:.2f}a{r:.2f} {r:.2f} 0 1 0 {2 * r:.2f} 0a{r:.2f} {r:.2f} 0 1 0 {-2 * r:.2f} 0Z"
    n, foot = found.normal, found.centre
    if not math.isinf(found.radius):  # as good as straight: its point that is nearest to the middle
        n = found.centre / np.linalg.norm(found.centre)
        foot = found.centre - found.radius * n
    along = 3 * np.array([-n[1], n[0]])
    return _polyline(np.array([foot - along, foot + along, foot + along + 3 * n, foot - along + 3 * n])) + "Z"


def _regions(decide: Decide) -> Iterator[str]:
    """The class of every point of the disk, in its tint; striped from the 21st class on"""
    for k, parts in outlines(decide):
        d = "".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in _places(part)) + "Z" for part in parts)
        yield f'<path class="{colour(k)} tint region" id="region-{k}" clip-path="url(#rim)" d="{d}"/>'
        if striped(k):
            yield f'<path class="stripes" clip-path="url(#rim)" d="{d}"/>'


def _places(X: Array) -> list[list[float]]:
    found: list[list[float]] = (CENTRE + RADIUS * X * [1, -1]).tolist()
    return found


def _marks(points: Array, indices: Indices, K: int) -> Iterator[str]:
    """One path for each age and class, the newest on top; smaller towards the rim, as everything is in the disk"""
    n = len(points)
    largest = min(7.5, max(2.6, 5.5 * (250 / max(n, 1)) ** 0.25))
    sizes = np.round(largest * (0.4 + 0.6 * (1 - np.vecdot(points, points))), 1).tolist()
    slices = min(len(AGES), 1 + n // FADING)
    for age, rows in zip(AGES[slices - 1 :: -1], np.array_split(np.arange(n), slices), strict=True):
        for k in range(K):
            marks = "".join(_mark(_place(points[i]), k, sizes[i]) for i in rows[indices[rows] == k])
            if marks:
                yield f'<path class="{colour(k)} mark" opacity="{age}" d="{marks}"/>'


def _mark(at: tuple[float, float], k: int, size: float) -> str:
    start, outline = _outline(shape(k), size)
    return f"M{at[0] + start[0]:.1f} {at[1] + start[1]:.1f}{outline}"


@lru_cache(maxsize=1024)
def _outline(shape: int, size: float) -> tuple[tuple[float, float], str]:
    """Where the outline of a mark begins, seen from its middle, and how it goes on from there"""
    corners = [(round(size * a, 1), round(size * b, 1)) for a, b in SHAPES[shape]]
    if not corners:
        return (0.0, -size), f"a{size:g} {size:g} 0 1 1-.01 0z"
    steps = "".join(f"l{round(c - a, 1):g} {round(d - b, 1):g}" for (a, b), (c, d) in pairwise(corners))
    return corners[0], steps.replace(" -", "-") + "z"


def _lines(view: _View) -> Iterator[str]:
    """The boundaries, over the points; the rim; the reference points"""
    for N in view.normals:
        if not _spacelike(N):
            continue
        if view.threshold is None:
            yield f'<path id="boundary" class="boundary" d="{_arc(N)}"/>'
        else:
            yield f'<path id="geodesic" class="through" d="{_arc(N)}"/>'
    if view.circle is not None:
        yield f'<path id="boundary" class="boundary" clip-path="url(#rim)" d="{_drawn(view.circle)}"/>'
    if view.threshold is not None:
        yield f'<path id="threshold" class="boundary" d="{_polyline(view.threshold)}"/>'
    yield f'<circle class="rim" cx="{CENTRE}" cy="{CENTRE}" r="{RADIUS}"/>'
    for k, p in enumerate(view.references):
        x, y = _place(p)
        one = "reference" if len(view.references) == 1 else f"{colour(k)} own"
        yield f'<circle class="{one}" cx="{x:.2f}" cy="{y:.2f}" r="5.5"/>'


def _drawn(found: Curve) -> str:
    """A whole circle, to be clipped; or a line through the disk"""
    return _enclosed(found) if found.radius < STRAIGHT else "L".join(_enclosed(found).split("L")[:2])


def _arc(N: Array) -> str:
    """The geodesic with the normal N"""
    start, end = _ideal(N)
    size, time = float(np.linalg.norm(N[1:])), abs(float(N[0]))
    length = math.sqrt((size - time) * (size + time))
    if length > STRAIGHT * time:
        return f"M{_at(start)}L{_at(end)}"
    r = RADIUS * length / time
    return f"M{_at(start)}A{r:.3f} {r:.3f} 0 0 {int(N[0] > 0)} {_at(end)}"


def _ideal(N: Array) -> tuple[Array, Array]:
    """Its ideal points, that on N's right and that on its left: at arg N_s ∓ arccos(N₀/‖N_s‖)"""
    size, theta = np.linalg.norm(N[1:]), math.atan2(N[2], N[1])
    phi = math.atan2(math.sqrt((size - N[0]) * (size + N[0])), N[0])
    return (
        np.array([math.cos(theta - phi), math.sin(theta - phi)]),
        np.array([math.cos(theta + phi), math.sin(theta + phi)]),
    )


def _side(line: str, start: Array, end: Array) -> str:
    """What lies on the positive side of a line between ideal points: back along the rim, clockwise"""
    turn = (math.atan2(end[1], end[0]) - math.atan2(start[1], start[0])) % math.tau
    return f"{line}A{RADIUS} {RADIUS} 0 {int(turn > math.pi)} 1 {_at(start)}Z"


def _polyline(points: Array) -> str:
    return "M" + "L".join(_at(x) for x in points)


def _place(x: Array) -> tuple[float, float]:
    return CENTRE + RADIUS * float(x[0]), CENTRE - RADIUS * float(x[1])


def _at(x: Array) -> str:
    return "{:.2f} {:.2f}".format(*_place(x))


# ----------------------------------------------------------------------------------------- text

#: A row of the panel: its height, and what stands in it, its baseline at 0
Row = tuple[int, str]


def _panel(rows: Sequence[Row]) -> Iterator[str]:
    tops = accumulate((height for height, _ in rows), initial=MARGIN)
    for top, (height, content) in zip(tops, rows, strict=False):
        if content:
            yield f'<g transform="translate({PANEL} {top + height})">{content}</g>'


def _heading(name: str, kind: str, space: str) -> list[Row]:
    return [
        (22, f'<title>{escape(name)}</title><text class="name">{escape(_short(name, 24))}</text>'),
        (22, f'<text class="soft">{escape(kind)}</text>'),
        (19, f'<text class="soft">{space}</text>'),
    ]


def _legend(labels: Sequence[str | int], indices: Indices) -> list[Row]:
    """The classes, their marks and how many points of each are drawn"""
    found = np.bincount(indices, minlength=len(labels))
    rows: list[Row] = [(14, "")]
    room = LEGEND if len(labels) <= LEGEND else LEGEND - 1
    for k, label in enumerate(labels[:room]):
        mark = f'<path class="{colour(k)} mark" d="{_mark((8, -4.5), k, 5.5)}"/>'
        whole, number = _clean(str(label)), f'<text class="count" x="{COLUMN}">{found[k]:,}</text>'
        text = f'<text x="26">{escape(_short(whole, 22))}</text>'
        rows.append((22, f"<title>{escape(whole)}</title>{mark}{text}{number}"))
    if len(labels) > room:
        rest = f'<text class="soft" x="26">and {len(labels) - room:,} more</text>'
        rows.append((22, f'{rest}<text class="count" x="{COLUMN}">{found[room:].sum():,}</text>'))
    return rows


def _key(view: _View, alpha: float | None, root: float, *, projected: bool) -> list[Row]:
    """What the lines mean"""
    line = '<path class="{}" d="M0-4.5h17"/><text x="26">{}</text>'
    drawn = [_spacelike(N) for N in view.normals]
    whose = "'s trace" if projected else ""
    rows = []
    if view.threshold is not None and alpha is not None:
        rows.append(line.format("boundary", f"threshold{whose}, α = {alpha / root:.4g}"))
        rows.append(line.format("through", "geodesic through p"))
        rows.append('<rect class="band" y="-11" width="17" height="12"/><text x="26">no rational agent is seen</text>')
    elif len(drawn) == 1 and drawn[0]:
        rows.append(line.format("boundary", f"boundary{whose}, a geodesic"))
    elif view.circle is not None:
        rows.append(line.format("boundary", f"boundary{whose}, a {view.circle.name}"))
    elif view.decide is not None:
        tints = "".join(f'<rect class="{colour(k)} tint" x="{6 * k}" y="-11" width="6" height="12"/>' for k in range(3))
        rows.append(f'{tints}<text x="26">the class a point there gets</text>')
    if len(view.references):
        ring = '<circle class="reference" cx="8.5" cy="-4.5" r="5.5"/>'
        rows.append(f'{ring}<text x="26">reference point{"s" * (len(view.references) > 1)}</text>')
    rows.append(f'<circle class="ring" cx="8.5" cy="-4.5" r="6.5"/><text x="26">rings {1 / root:.4g} apart</text>')
    return [(14, ""), *((22, row) for row in rows)]


def _counts(counts: Mapping[str, object]) -> list[Row]:
    row = '<text class="soft">{}</text><text class="count" x="{}">{}</text>'
    shown = ((name, f"{value:,}" if isinstance(value, int) else str(value)) for name, value in counts.items())
    return [(14, ""), *((20, row.format(escape(_clean(name)), COLUMN, escape(_clean(value)))) for name, value in shown)]


def _notes(notes: Sequence[str]) -> list[Row]:
    lines = [line for note in notes for line in textwrap.wrap(note, 40)]
    return [(14, ""), *((17, f'<text class="note">{escape(line)}</text>') for line in lines)]


def _silence(W: Array, view: _View, labels: Sequence[str | int], lorentz: bool) -> Iterator[str]:
    """Why a boundary is not drawn"""
    missing = not view.circle if view.form is not None else any(not _spacelike(N) for N in view.normals)
    if not W.any() and view.decide is None:
        yield "Nothing has been learned yet: there is no boundary."
    elif not len(view.points) and view.note:
        return
    elif missing and lorentz and not _spacelike(W[0]):
        label = _short(_clean(str(labels[int(W[0, 0] < 0)])), 22)
        yield f"w is timelike: no boundary, every point is called {label}."
    elif missing and view.form is not None:
        label = _short(_clean(str(labels[int(view.form[3] >= 0)])), 22)
        yield f"There is no boundary in this disk: every point of it is called {label}."
    elif missing:
        yield "The boundary does not meet this plane."


def _clean(text: str) -> str:
    """What XML cannot hold becomes �"""
    return re.sub(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "�", text)


def _short(text: str, width: int) -> str:
    """At most so many columns. A column is a little more than an average letter; capitals and m take up to two"""
    columns = accumulate(_columns(each) for each in text)
    fit = sum(at <= width for at in columns)
    return text if fit == len(text) else text[: fit - 1].rstrip() + "…"


def _columns(letter: str) -> float:
    if unicodedata.east_asian_width(letter) in "WF":
        return 2.0
    return 1.7 if letter in "MW@%mw—" else 1.3 if letter.isupper() else 1.0


def _style() -> str:
    light = "".join(f".c{k}{{fill:{c};stroke:{c}}}" for k, c in enumerate(COLOURS))
    dark = "".join(f".c{k}{{fill:{c};stroke:{c}}}" for k, c in enumerate(ON_DARK))
    return f"""<style>
text{{font:13px system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif;fill:#1b1f24}}
.name{{font-size:18px;font-weight:600}} .soft,.note{{fill:#5b6570}} .note{{font-size:12px}} .count{{text-anchor:end}}
{light}
.ground{{fill:#f4f6f8}} .disk{{fill:#fff}} .tint{{stroke:none;fill-opacity:.08;fill-rule:evenodd}}
.ring{{fill:none;stroke:#1b1f24;stroke-opacity:.15}} .rim{{fill:none;stroke:#1b1f24;stroke-width:1.5}}
.region{{fill-opacity:.17}} .stripes{{fill:url(#stripe);fill-opacity:.5}} .stripe{{stroke:#fff;stroke-width:3}}
.mark{{stroke:#fff;stroke-width:.5}}
.boundary,.through{{fill:none;stroke-linecap:round;stroke-linejoin:round}}
.boundary{{stroke:#1b1f24;stroke-width:2}}
.through{{stroke:#1b1f24;stroke-width:1.5;stroke-dasharray:1 5}}
.reference,.own{{fill:#fff;stroke-width:2.25}} .reference{{stroke:#1b1f24}}
.band{{fill:url(#hatch);fill-rule:evenodd}} .hatch{{fill:none;stroke:#1b1f24;stroke-opacity:.3}}
@media (prefers-color-scheme:dark){{
text{{fill:#e8ecf0}} .soft,.note{{fill:#9aa5b1}}
{dark}
.ground{{fill:#0f1318}} .disk{{fill:#181d24}} .tint{{stroke:none;fill-opacity:.13}} .region{{fill-opacity:.24}}
.stripe{{stroke:#181d24}}
.ring,.rim,.boundary,.through,.reference,.hatch{{stroke:#e8ecf0}} .mark{{stroke:#181d24}}
.reference,.own{{fill:#181d24}} .boundary,.through,.ring,.rim,.hatch{{fill:none}}
}}
</style>
<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">\
<path class="hatch" d="M0 0V6"/></pattern>\
<pattern id="stripe" width="9" height="9" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">\
<path class="stripe" d="M0 0V9"/></pattern><clipPath id="rim"><circle cx="{CENTRE}" cy="{CENTRE}" r="{RADIUS}"/>\
</clipPath></defs>"""


_STYLE = _style()
