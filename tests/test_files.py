"""Files as points and labels; and what is said about those that are not."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.files import Choice, FileProblem, blocks, read

X, Y = np.array([[0.1, -0.2], [0.3, 0.4], [-0.5, 0.1]]), ["a", "b", "a"]


def csv(header: bool = True, labels: Any = Y) -> str:
    rows = [f"{a},{b},{label}" for (a, b), label in zip(X.tolist(), labels, strict=True)]
    return "\n".join((["x,y,kind"] if header else []) + rows) + "\n"


def test_every_format_is_the_same_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(csv())
    (tmp_path / "b.csv").write_text(csv(header=False))
    (tmp_path / "c.jsonl").write_text(
        "".join(json.dumps({"point": x, "label": y}) + "\n" for x, y in zip(X.tolist(), Y, strict=True))
    )
    (tmp_path / "d.jsonl").write_text(
        "".join(json.dumps({"x": x, "kind": k, "z": y}) + "\n" for (x, y), k in zip(X.tolist(), Y, strict=True))
    )
    np.savez(tmp_path / "e.npz", X=X, y=np.array(Y))
    for name, choice in (
        ("a.csv", Choice("kind")),
        ("a.csv", Choice("-1", ("x", "1"))),
        ("b.csv", Choice()),
        ("c.jsonl", Choice()),
        ("d.jsonl", Choice("kind")),
        ("e.npz", Choice()),
        ("e.npz", Choice("y", ("X",))),
    ):
        table = read(str(tmp_path / name), choice)
        assert table.X.tolist() == X.tolist() and table.y.tolist() == Y, name


@pytest.mark.parametrize(
    ("words", "labels"),
    [
        (["1", "0", "1"], [1, 0, 1]),
        (["1.0", "-1.0", "1.0"], [1, -1, 1]),
        (["true", "False", "true"], [True, False, True]),
        (["1", "b", "1"], ["1", "b", "1"]),
    ],
)
def test_labels_of_a_text_are_of_one_type(tmp_path: Path, words: list[str], labels: list[Any]) -> None:
    (tmp_path / "a.csv").write_text(csv(labels=words))
    assert read(str(tmp_path / "a.csv")).y.tolist() == labels


def test_the_papers_layout_holds_its_test_points_out(tmp_path: Path) -> None:
    y = np.array([0.0, 1.0, 0.0])
    np.savez(tmp_path / "a.npz", x_train=X, y_train=y, x_test=X[:2], y_test=y[:2])
    table = read(str(tmp_path / "a.npz"))
    assert table.y.tolist() == [0, 1, 0] and table.y.dtype == np.int64
    assert table.held_out is not None and table.held_out[1].tolist() == [0, 1]


def test_an_npy_is_mapped_not_read(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.column_stack([X, [1, 0, 1]]).astype(np.float32))
    table = read(str(tmp_path / "a.npy"))
    assert table.y.tolist() == [1, 0, 1]
    assert isinstance(table.X.base, np.memmap) or isinstance(table.X, np.memmap)


@pytest.mark.parametrize(
    ("name", "content", "choice", "says"),
    [
        ("a.txt", b"1", Choice(), "known are csv"),
        ("a.csv", b"", Choice(), "empty"),
        ("a.csv", b"x,y,kind\n", Choice(), "empty"),
        ("a.csv", b"x,y,kind\n0.1,0.2,a\n0.3,b\n", Choice(), "line 3: 2 columns"),
        ("a.csv", b"x,y,kind\n0.1,oops,a\n", Choice(), "line 2: column 'y' holds 'oops'"),
        ("a.csv", b"x,y,kind\n0.1,0.2,a\n", Choice("label"), "no column 'label'; it has x, y, kind"),
        ("a.csv", b"kind\na\n", Choice(), "coordinates beside the label"),
        ("a.csv", b"x,y,kind\n0.1,\xff\xfe,a\n", Choice(), "not UTF-8"),
        ("a.jsonl", b'{"point": [0.1], "label": 1}\n{"point"', Choice(), "line 2 is not JSON"),
        ("a.jsonl", b"[1]\n", Choice(), "not an object"),
        ("a.jsonl", b'{"point": [0.1]}\n', Choice(), "no 'label'"),
        ("a.jsonl", b'{"point": [0.1], "label": 1}\n{"point": [0.1, 2], "label": 1}', Choice(), "of one length"),
        ("a.jsonl", b'{"point": [0.1], "label": null}\n', Choice(), "label 0 is missing"),
        ("a.npy", b"nothing", Choice(), "not a file of NumPy's"),
        ("a.parquet", b"nothing", Choice(), "parquet"),
    ],
)
def test_what_is_no_table_is_said(tmp_path: Path, name: str, content: bytes, choice: Choice, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileProblem) as caught:
        read(str(tmp_path / name), choice)
    assert says in str(caught.value)


def test_arrays_of_other_shapes_are_said(tmp_path: Path) -> None:
    for array, says in (
        (np.zeros(3), "(n, d+1)"),
        (np.zeros((0, 3)), "empty"),
        (np.full((2, 3), 0.5), "label 0 is 0.5"),
    ):
        np.save(tmp_path / "a.npy", array)
        with pytest.raises(FileProblem) as caught:
            read(str(tmp_path / "a.npy"))
        assert says in str(caught.value)
    np.save(tmp_path / "a.npy", np.array([[0.1, 0.2, np.nan]]))
    with pytest.raises(FileProblem, match="label 0 is nan"):
        read(str(tmp_path / "a.npy"))
    np.savez(tmp_path / "b.npz", points=X)
    with pytest.raises(FileProblem, match="has the arrays points"):
        read(str(tmp_path / "b.npz"))
    with pytest.raises(FileProblem, match="No such file"):
        read(str(tmp_path / "c.npz"))


def test_stdin_is_read_in_blocks() -> None:
    text = csv() + "".join(f"0.1,0.{i % 10},b\n" for i in range(2500))
    tables = list(blocks(io.StringIO(text), Choice("kind")))
    assert [len(table) for table in tables] == [1000, 1000, 503]
    lines = "".join(json.dumps({"point": [0.1, 0.2], "label": 1}) + "\n" for _ in range(5))
    assert [len(table) for table in blocks(io.StringIO(lines), Choice())] == [1, 4]
    with pytest.raises(FileProblem, match="stdin is empty"):
        list(blocks(io.StringIO("\n\n"), Choice()))
