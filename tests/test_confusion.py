"""The confusion matrix counts pairs, and a commit rewrites only the rows that changed."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.sessions.tally import Confusion, Tally, from_cells, observe, pack_row, unpack_row

pairs = st.lists(st.tuples(st.integers(0, 999), st.sampled_from([0, 1, 255, 256, 999])), min_size=1, max_size=50)


@settings(deadline=None, derandomize=True)
@given(st.lists(pairs, min_size=1, max_size=5))
def test_it_counts_pairs_however_they_are_cut(batches: list[list[tuple[int, int]]]) -> None:
    found = Confusion()
    for batch in batches:
        true, decided = (np.array(column) for column in zip(*batch, strict=True))
        found = observe(Tally(), found, 1000, true, decided).confusion
    expected = Counter(pair for batch in batches for pair in batch)
    assert {(i, j): n for i, j, n in found.cells()} == expected
    assert from_cells(list(found.cells())) == found
    assert all(unpack_row(pack_row(row)) == row for row in found.rows.values())
    matrix = found.matrix(1000)
    assert matrix.sum() == expected.total() and all(matrix[pair] == n for pair, n in expected.items())


def test_rows_that_nothing_was_added_to_are_the_same_objects() -> None:
    before = observe(Tally(), Confusion(), 3, np.array([0, 1, 1]), np.array([0, 0, 1])).confusion
    after = observe(Tally(), before, 3, np.array([1]), np.array([2])).confusion
    assert after.rows[0] is before.rows[0] and after.rows[1] == {0: 1, 1: 1, 2: 1}
    assert before.rows[1] == {0: 1, 1: 1}  # it is left as it was
