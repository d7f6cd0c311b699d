"""What people hold in their hands: frames, tables, tensors, tuples, generators; and what is refused with a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from clients import Client, HorocycleError, LengthMismatch, NotANumber, UnknownLabel, WrongArgument
from clients.arrays import as_array, plain, whole
from clients.client import Session
from tests.running import Running
from tests.strategies import points

X = points(np.random.default_rng(1), 600, 2, 2.0)
Y = np.where(X[:, 0] > 0, 1, -1)


@pytest.fixture(scope="module")
def session(running: Running) -> Iterator[Session]:
    with Client(running.url) as client:
        yield client.sessions.open(dimension=2)


class Tensor:
    """As torch's: NumPy gets at it only when it is detached, on this machine, and of a type that NumPy has"""

    def __init__(self, values: Any, dtype: str, bare: bool = False) -> None:
        self.values, self.dtype, self.bare = values, dtype, bare

    def detach(self) -> Tensor:
        return Tensor(self.values, self.dtype, bare=True)

    def cpu(self) -> Tensor:
        return self

    def float(self) -> Tensor:
        return Tensor(self.values.astype(np.float32), "torch.float32", self.bare)

    def numpy(self) -> Any:
        if not self.bare or self.dtype == "torch.bfloat16":
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        return self.values


@pytest.mark.parametrize(
    ("given", "labels"),
    [
        (tuple(map(tuple, X.tolist())), tuple(Y.tolist())),
        ((x for x in X), (y for y in Y)),
        (iter(X.tolist()), Y.astype(float)),
        (X.astype(np.float32), Y.astype(np.int8)),
        (Tensor(X, "torch.float64"), Tensor(Y, "torch.int64")),
        (Tensor(X.astype(np.float32), "torch.bfloat16"), Y[:, None]),
        (X.tolist(), np.array(Y.tolist(), dtype=object)),
    ],
    ids=["tuples", "generators", "float labels", "float32", "tensor", "bfloat16, n×1", "objects"],
)
def test_all_of_these_are_points_and_labels(session: Session, given: Any, labels: Any) -> None:
    before = session.info.observed
    assert session.observe(given, labels, columns=False).accepted == 600
    assert session.info.observed == before + 600


def test_pairs_may_be_a_generator(session: Session) -> None:
    assert session.observe((x, y) for x, y in zip(X, Y, strict=True)).accepted == 600
    assert session.observe((0.1, 0.2), 1).accepted == 1


def test_a_sparse_matrix_is_refused_with_its_remedy(session: Session) -> None:
    sparse = SimpleNamespace(toarray=lambda: X, nnz=3)
    with pytest.raises(NotANumber, match=r"X\.toarray\(\)"):
        session.observe(sparse, Y)


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (lambda s: s.fit(X, Y[1:]), LengthMismatch, "600 points but 599"),
        (lambda s: s.fit([0.1, 0.2], [1, -1]), HorocycleError, "one point is"),
        (lambda s: s.fit([["a", "b"]], [1]), HorocycleError, "n rows of d numbers"),
        (lambda s: s.fit(X, np.where(Y > 0, 7, 8)), UnknownLabel, "open a session with labels="),
        (lambda s: s.fit(X, 1), HorocycleError, "600 points but 0"),
        (lambda s: s.observe(X, Y, batch=0), WrongArgument, "at least one point"),
        (
            lambda s: s.observe(((x, y) for x, y in zip(X, Y, strict=True)), truth=X),
            WrongArgument,
            "give X, y and truth",
        ),
    ],
)
def test_every_mistake_is_one_of_ours_with_a_remedy(
    session: Session, call: Any, kind: type[HorocycleError], says: str
) -> None:
    with pytest.raises(kind) as caught:
        call(session)
    assert says in str(caught.value)


def test_an_address_that_is_none_is_named() -> None:
    with pytest.raises(HorocycleError, match="http://"):
        Client("localhost:8000")


def test_plain_numbers() -> None:
    assert plain(np.array([1, "a"], dtype=object)) == [1, "a"]
    assert [type(each) for each in plain(np.array([np.int64(1), 2.0], dtype=object))] == [int, float]
    assert whole([1.0, 2, "a", 0.5]) == [1, 2, "a", 0.5]
    assert as_array(None) is None and as_array("a") == "a"
