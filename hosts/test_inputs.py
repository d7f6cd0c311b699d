"""Frames, tables and tensors of the real libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clients import Client, NotANumber
from clients.files import Choice, read
from tests.running import Running
from tests.strategies import points

X = points(np.random.default_rng(1), 300, 2, 2.0)
Y = np.where(X[:, 0] > 0, 1, -1)
FRAME = pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "label": Y})

CASES: dict[str, tuple[Any, Any]] = {
    "pandas": (FRAME[["x", "y"]], FRAME["label"]),
    "pandas, a gap in the labels' type": (FRAME[["x", "y"]], FRAME["label"].astype(float)),
    "polars": (pl.DataFrame(FRAME[["x", "y"]].to_dict("list")), pl.Series(Y)),
    "arrow": (pa.table({"x": X[:, 0], "y": X[:, 1]}), pa.chunked_array([Y[:100], Y[100:]])),
}


@pytest.mark.parametrize("case", CASES)
def test_points_and_labels_of_every_library(running: Running, case: str) -> None:
    points_, labels = CASES[case]
    with Client(running.url) as client:
        session = client.sessions.open(dimension=2)
        assert session.observe(points_, labels, columns=False).accepted == 300
        assert len(session.predict(points_).predictions) == 300


def test_a_column_of_words_is_named(running: Running) -> None:
    frame = FRAME.assign(label="a")
    with Client(running.url) as client, pytest.raises(NotANumber, match="column 'label'"):
        client.sessions.open(dimension=3).observe(frame, Y)


def test_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pandas(FRAME), tmp_path / "a.parquet")
    table = read(str(tmp_path / "a.parquet"), Choice(columns=("x", "y")))
    assert np.array_equal(table.X, X) and np.array_equal(table.y, Y)


def test_tensors(running: Running) -> None:
    """torch weighs gigabytes, so it is not installed for this; where it is there, it is tried"""
    torch = pytest.importorskip("torch")
    with Client(running.url) as client:
        session = client.sessions.open(dimension=2)
        for tensor in (torch.tensor(X), torch.nn.Parameter(torch.tensor(X)), torch.tensor(X).bfloat16()):
            assert session.observe(tensor, torch.tensor(Y), columns=False).accepted == 300
