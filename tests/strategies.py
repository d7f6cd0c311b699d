"""Points of the ball, as Hypothesis strategies and from a generator."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

Array = NDArray[np.float64]


def directions(rng: np.random.Generator, n: int, d: int) -> Array:
    """n unit vectors, uniform on the sphere."""
    g = rng.standard_normal((n, d))
    return np.asarray(g / np.linalg.norm(g, axis=-1, keepdims=True))


def points(rng: np.random.Generator, n: int, d: int, radius: float) -> Array:
    """n points of the unit ball: uniform directions, hyperbolic radii uniform in [0, radius]."""
    return np.tanh(rng.uniform(0, radius, (n, 1)) / 2) * directions(rng, n, d)


#: points drawn from a generator cost Hypothesis one integer, whatever d
generators = st.integers(0, 2**32 - 1).map(np.random.default_rng)
dimensions = st.sampled_from([1, 2, 3, 10, 1000])
#: below 1e-150 the squares of coordinates leave the normal floats, and relative accuracy with them
radii = st.just(0.0) | st.floats(1e-100, 12.25)
#: three sets of 8 points, of one dimension and radius
triples = st.builds(lambda rng, d, radius: points(rng, 24, d, radius).reshape(3, 8, d), generators, dimensions, radii)
