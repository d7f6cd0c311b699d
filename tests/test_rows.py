"""Labelled points as bytes: rows, and the columns that many of them are kept as."""

from __future__ import annotations

import numpy as np
import pytest

from service.sessions import rows
from service.sessions.rows import Batch

SIZES = [1, 2, 7, 8, 9, 1000]
CLASSES = [2, 3, 256, 257]


def some(n: int, d: int, K: int, *, truth: bool) -> tuple[Batch, rows.Indices]:
    rng = np.random.default_rng(n + 10 * d + K)
    X, true = rng.uniform(-0.5, 0.5, (2, n, d))
    indices, predicted = rng.integers(0, K, (2, n))
    indices[-1], predicted[-1] = K - 1, K - 1
    return Batch(X, indices, true if truth else None), predicted


def assert_same(found: tuple[Batch, rows.Indices], batch: Batch, predicted: rows.Indices) -> None:
    assert rows.pack(found[0]) == rows.pack(batch)
    assert found[0].X.flags.c_contiguous
    assert np.array_equal(found[1], predicted)
    truths = [each.truth if each.truth is None else each.truth.tolist() for each in (found[0], batch)]
    assert truths[0] == truths[1]


@pytest.mark.parametrize("truth", [False, True])
@pytest.mark.parametrize("K", CLASSES)
@pytest.mark.parametrize("n", SIZES)
def test_columns_come_back_and_are_smaller_than_rows(n: int, K: int, truth: bool) -> None:
    for d in (1, 2, 10):
        batch, predicted = some(n, d, K, truth=truth)
        data = rows.pack_columns(batch, predicted, K)
        assert_same(rows.unpack_columns(data, n, d, truth), batch, predicted)
        assert len(data) <= n * (8 * d + (8 * d if truth else 0) + (4 if K > 256 else 2))
    if K == 2:
        assert len(rows.pack_columns(*some(1000, 2, 2, truth=False), 2)) == 16_000 + 250


@pytest.mark.parametrize("truth", [False, True])
@pytest.mark.parametrize("K", CLASSES)
@pytest.mark.parametrize("n", SIZES)
def test_rows_that_an_earlier_version_kept_instead_are_read(n: int, K: int, truth: bool) -> None:
    for d in (1, 2, 10):
        batch, predicted = some(n, d, K, truth=truth)
        data = rows.pack(batch) + predicted.astype("u1" if K <= 256 else "<u2").tobytes()
        data += b"" if batch.truth is None else batch.truth.tobytes()
        assert_same(rows.unpack_columns(data, n, d, truth), batch, predicted)


@pytest.mark.parametrize("K", CLASSES)
def test_columns_of_another_length_are_refused(K: int) -> None:
    batch, predicted = some(1000, 2, K, truth=False)
    data = rows.pack_columns(batch, predicted, K)
    for wrong in (data[:-1], data[:-2], data + b"x", data[: len(data) // 2], b""):
        with pytest.raises(ValueError):
            rows.unpack_columns(wrong, 1000, 2, has_truth=False)


@pytest.mark.parametrize("seed", range(200))
def test_whatever_is_joined_is_there_in_its_order(seed: int) -> None:
    """Parts of tables that were read together, all of them or some, beside others"""
    rng, batches = np.random.default_rng(seed), list[Batch]()
    for _ in range(rng.integers(1, 4)):
        counts = [int(n) for n in rng.integers(1, 4, size=rng.integers(1, 5))]
        table = np.column_stack([rng.uniform(-0.5, 0.5, (sum(counts), 2)), rng.integers(0, 2, sum(counts))])
        parts = rows.rows_of(table).parts(counts)
        batches += [part for part in parts if rng.random() < 0.8] if rng.random() < 0.5 else parts
        if rng.random() < 0.3:
            batches.append(Batch(rng.uniform(-0.5, 0.5, (2, 2)), rng.integers(0, 2, 2)))
    if batches:
        found = rows.joined(batches)
        np.testing.assert_array_equal(found.X, np.concatenate([batch.X for batch in batches]))
        np.testing.assert_array_equal(found.indices, np.concatenate([batch.indices for batch in batches]))
        assert len(found) == sum(map(len, batches)) and rows.pack(found) == b"".join(map(rows.pack, batches))
