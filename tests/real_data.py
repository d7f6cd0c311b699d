"""The paper's embeddings, where they lie beside the project (`shared/data`); they are not ours to commit."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from service.geometry import Array

ROOT = Path(__file__).parents[1]


def embedding(name: str, *parts: str) -> tuple[Array, NDArray[np.int64]]:
    """Points and classes 0 … K−1 of train, test or both, shuffled; skips the test loudly where there is no such file"""
    file = f"shared/data/{name}_poincare_embedding.npz"
    found = [folder / file for folder in (ROOT.parent, ROOT.parent.parent) if (folder / file).exists()]
    if not found:
        print(f"\nNO REAL DATA: {ROOT.parent / file} is not there, and is not tested", file=sys.__stderr__)
        pytest.skip(f"{file} is not beside the project")
    with np.load(found[0], allow_pickle=False) as data:
        X, y = (np.concatenate([data[f"{axis}_{part}"] for part in parts]) for axis in "xy")
    order = np.random.default_rng(0).permutation(len(y))
    return np.ascontiguousarray(X[order]), np.unique(y, return_inverse=True)[1][order]
