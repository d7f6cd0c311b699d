"""Which fit should be the one that nobody described: test accuracy of kinds, features and costs.

    python -m benchmarks.fit_defaults [FOLDER]

On the paper's embeddings (train and test as published; FOLDER as in real_streams) and on seeded synthetic sets, half of
each for the test. At most 10,000 training points: as many as a session keeps unless it is told otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.real_streams import data_folder, embedding, ring, wrapped_normals
from benchmarks.streams import ball
from service.batch.classifier import Recipe, fit
from service.geometry import Array, hemisphere, signed_distance

MOST = 10_000
Labels = NDArray[np.int64]
Split = tuple[Array, Labels, Array, Labels]

RECIPES = {
    "softmax, hemisphere, C=1000": Recipe(kind="softmax", features="hemisphere", C=1000.0),
    "softmax, hemisphere, C=10": Recipe(kind="softmax", features="hemisphere", C=10.0),
    "softmax, hyperboloid, C=1": Recipe(kind="softmax", features="hyperboloid", C=1.0),
    "softmax, hyperboloid, C=5": Recipe(kind="softmax", features="hyperboloid", C=5.0),
    "svm, hemisphere, C=1": Recipe(features="hemisphere"),
    "svm, hemisphere, squared hinge, C=100": Recipe(features="hemisphere", loss="squared_hinge", C=100.0),
    "svm, tangent at lorentz, C=5": Recipe(reference="lorentz", C=5.0),
    "svm, tangent at lorentz, squared hinge, C=5": Recipe(reference="lorentz", loss="squared_hinge", C=5.0),
    "svm, tangent at hull, C=5": Recipe(reference="hull", C=5.0),
    "svm, tangent at the origin, C=1": Recipe(reference="origin"),
}


def sets(folder: Path | None) -> Iterator[tuple[str, Split]]:
    for name in ("olsson", "cifar", "fashion-mnist") if folder else ():
        train, test = (embedding(Path(str(folder)), name, (part,))[:2] for part in ("train", "test"))
        order = np.random.default_rng(0).permutation(len(train[1]))[:MOST]
        yield name, (train[0][order], train[1][order], *test)
    rng = np.random.default_rng(0)
    for K, width in ((10, 0.4), (30, 0.135)):
        yield f"{K} clusters", halves(*wrapped_normals(rng, 4000, ring(K), width))
    X, _ = wrapped_normals(rng, 4000, np.zeros((1, 8)), 0.8)
    height = hemisphere(X) @ rng.standard_normal(10)
    side = (height >= np.median(height)).astype(np.int64)
    yield "8-d, 10 % noise", halves(X, np.where(rng.random(4000) < 0.1, 1 - side, side))
    far = ball(rng, 4000, 8, 8.0)  # up to the radius at which hyperboloid coordinates are in the thousands
    side = (signed_distance(np.zeros(8), rng.standard_normal(8), far) >= 0).astype(np.int64)
    yield "8-d, far out", halves(far, np.where(rng.random(4000) < 0.1, 1 - side, side))
    yield "6 normals, 10-d", halves(*wrapped_normals(rng, 4000, rng.standard_normal((6, 10)), 0.9))


def halves(X: Array, y: Labels) -> Split:
    n = len(y) // 2
    return X[:n], y[:n], X[n:], y[n:]


def accuracy(recipe: Recipe, split: Split) -> float:
    X, y, asked, truth = split
    if recipe.reference == "origin":
        recipe = Recipe(reference=[[0.0] * X.shape[1]])
    classifier, _ = fit(recipe, X, y, int(y.max()) + 1, 1.0, lambda done: None)
    return 100 * float((classifier.decide(asked) == truth).mean())


def main(words: list[str] | None = None) -> None:
    found = dict(sets(data_folder(words[0] if words else None)))
    wide = max(map(len, RECIPES))
    print(f"test accuracy, %\n\n| {'fit':{wide}} |", " | ".join(found), "|")
    print(f"|{'-' * (wide + 2)}|", "|".join("-" * (len(name) + 2) for name in found), "|", sep="")
    for name, recipe in RECIPES.items():
        cells = (f"{accuracy(recipe, split):{max(len(at), 4)}.1f}" for at, split in found.items())
        print(f"| {name:{wide}} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
