"""One solver, wherever the rows are: partitions, files, processes; the same numbers from all of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.batch import passes as batch_passes
from service.batch import softmax, svm
from service.batch.classifier import Recipe, fit, fit_points
from service.batch.passes import Held, Passes, Seen, Task, added, held
from service.batch.points import InMemory, View
from service.errors import FitFailed, InvalidParameter, NotSeparable, UnknownLabel
from service.fits import sources
from service.fits.command import main
from service.fits.executors import Processes, Stopped
from service.fits.roots import require_allowed
from service.fits.sources import Files, pieces_of
from service.geometry import Array
from tests.fit_cases import RECIPES, REFERENCE, Slow, count, data
from tests.waiting import wait_until


def divided(X: Array, indices: Any, K: int, cuts: Sequence[int]) -> InMemory:
    """The same points in partitions"""

    class Divided(InMemory):
        def passes(self, view: View) -> Passes:
            whole = super().passes(view)
            block, ends = view.block(X, indices), [0, *cuts, len(X)]
            parts = [Held(block.rows(slice(a, b)), a) for a, b in pairwise(ends)]
            return Passes(parts, whole.d, whole.width)

    return Divided(X, indices, K)


def test_sums_of_chunks_do_not_depend_on_their_order() -> None:
    rng = np.random.default_rng(0)
    terms = [rng.normal(size=5) * 10.0 ** rng.integers(-8, 9) for _ in range(300)]
    exact = [float(sum(Fraction(float(term[j])) for term in terms)) for j in range(5)]
    for _ in range(5):
        rng.shuffle(terms)
        cut = int(rng.integers(1, 299))
        halves = [added(Seen((term,)) for term in part) for part in (terms[:cut], terms[cut:])]
        assert added(halves).totals()[0].tolist() == exact


@pytest.mark.parametrize("name", RECIPES)
def test_partitions_of_whole_chunks_give_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_passes, "CHUNK", 4096)
    monkeypatch.setattr(batch_passes, "MOST", 1024)
    X, indices = data(name, 5000)
    one, told = fit(RECIPES[name], X, indices, 2, 1.0, lambda _: None)
    for cuts in ([1024], [2048, 4096], [1024, 2048, 3072, 4096]):
        other, also = fit_points(RECIPES[name], divided(X, indices, 2, cuts), 1.0, lambda _: None)
        assert one.pack() == other.pack()
        assert told == also


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("K", [2, 3])
def test_any_partitions_give_the_same_fit(name: str, K: int) -> None:
    """Sums differ by rounding, and the fit by no more than 1e-9"""
    if name == "hard" and K > 2:
        return
    X, indices = data(name, 4001, K)
    one, told = fit(RECIPES[name], X, indices, K, 1.0, lambda _: None)
    other, also = fit_points(RECIPES[name], divided(X, indices, K, [17, 1500, 1501]), 1.0, lambda _: None)
    size = np.abs(one.weights).max()
    assert np.abs(one.weights - other.weights).max() <= 1e-9 * size
    assert np.abs(one.platt - other.platt).max(initial=0) <= 1e-9 * np.abs(one.platt).max(initial=1)
    assert told["certificate"]["primal"] == pytest.approx(also["certificate"]["primal"], rel=1e-9)
    assert told["certificate"]["dual"] == pytest.approx(also["certificate"]["dual"], rel=1e-9)
    assert told["training_accuracy"] == also["training_accuracy"]
    assert 0 <= also["certificate"]["gap"] <= 1e-6


def test_more_dimensions_than_are_factorised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products with the Hessian alone, a pass each"""
    monkeypatch.setattr(batch_passes, "GATHER", 60_000)
    rng = np.random.default_rng(0)
    F = rng.normal(size=(4000, 300)) / 20
    y = np.where(F @ np.ones(300) + rng.normal(size=4000) / 4 > 0, 1.0, -1.0)
    block = batch_passes.Block(F, y, np.ones(4000), np.linalg.norm(F, axis=1), np.arange(4000))
    for loss in ("squared_hinge",):
        whole = svm.solve(held(block), loss=loss)
        parts = [Held(block.rows(slice(a, a + 1000)), a) for a in range(0, 4000, 1000)]
        other = svm.solve(Passes(parts, 300), loss=loss)
        assert np.abs(whole.w - other.w).max() <= 1e-9 * np.abs(whole.w).max()


def test_what_is_not_separable_has_a_witness_in_every_partition() -> None:
    X, indices = data("hinge", 3000)
    with pytest.raises(NotSeparable) as caught:
        fit_points(RECIPES["hard"], divided(X, indices, 2, [1000, 2000]), 1.0, lambda _: None)
    F, y = svm.features(X, REFERENCE[0]), np.where(indices == 1, 1.0, -1.0)
    assert caught.value.witness
    rows, weights = np.array([i for i, _ in caught.value.witness]), np.array([s for _, s in caught.value.witness])
    assert np.linalg.norm((y[rows] * weights) @ F[rows]) <= 1e-9


# ---------------------------------------------------------------------------------- the softmax's bounds


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    C=st.sampled_from([1e-3, 1.0, 1e3]),
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
    gap=st.sampled_from([1e-4, 1e-12]),
)
def test_a_softmax_is_bounded_whatever_was_rounded(seed: int, C: float, scale: float, gap: float) -> None:
    """P and D of the very W that is returned, at 60 digits, are within what is told"""
    rng = np.random.default_rng(seed)
    F, y = rng.normal(size=(25, 3)) * scale, np.arange(25) % 3
    found = softmax.fit(F, y, C=C, gap=gap)
    with mpmath.workdps(60):
        W = [[mpmath.mpf(float(x)) for x in row] for row in found.W]
        square = sum(x * x for row in W for x in row) / 2
        P, G = square, [[mpmath.mpf(x) for x in row] for row in found.W.tolist()]
        for f, label in zip(F.tolist(), y.tolist(), strict=True):
            z = [mpmath.fdot(row, f) for row in W]
            total = sum(mpmath.exp(each) for each in z)
            P += C * (mpmath.log(total) - z[label])
            for k in range(3):
                pull = C * (mpmath.exp(z[k]) / total - (k == label))
                G[k] = [g + pull * x for g, x in zip(G[k], f, strict=True)]
        D = P - sum(g * g for row in G for g in row) / 2
        assert found.primal >= P
        assert found.dual <= D
    assert 0 <= found.gap <= gap


# ---------------------------------------------------------------------------------- files and processes


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Array, Any]]:
    """Points in two files, of three pieces"""
    monkeypatch.setattr(sources, "PIECE", 2000)
    X, indices = data("hinge", 5000)
    np.save(tmp_path / "a.npy", np.c_[X, indices][:4000])
    np.save(tmp_path / "b.npy", np.c_[X, indices][4000:].astype(np.float32))
    X[4000:] = X[4000:].astype(np.float32)
    yield tmp_path, X, indices


def test_files_give_what_memory_gives(stored: tuple[Path, Array, Any]) -> None:
    folder, X, indices = stored
    pieces, d = pieces_of(str(folder / "*.npy"))
    assert [len(piece) for piece in pieces] == [2000, 2000, 1000]
    files = Files(pieces, d)
    assert files.labels == (0, 1)
    for name in ("hinge", "squared hinge", "softmax"):
        one, _ = fit(RECIPES[name], X, indices, 2, 1.0, lambda _: None)
        other, report = fit_points(RECIPES[name], files, 1.0, lambda _: None)
        assert np.abs(one.weights - other.weights).max() <= 1e-9 * np.abs(one.weights).max()
        assert report["points"] == 5000


def test_reference_points_are_learned_from_some_of_them(
    stored: tuple[Path, Array, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "SOME", 500)
    files = Files(*pieces_of(str(stored[0] / "*.npy")))
    _, report = fit_points(Recipe(reference="lorentz"), files, 1.0, lambda _: None)
    assert report["reference_methods"][0]["sampled"] == 500


class Killing:
    """An executor of two processes, one of which is killed during a pass"""

    def __init__(self, pool: Processes) -> None:
        self.pool, self.passes, self.killed = pool, 0, 0

    def __call__(self, tasks: Sequence[Task]) -> Iterator[Seen]:
        self.passes += 1
        if self.passes == 4:
            victim = next(iter(self.pool.pids()))
            self.killed = victim
            os.kill(victim, signal.SIGKILL)
        return self.pool(tasks)


def test_a_dead_process_is_survived(stored: tuple[Path, Array, Any]) -> None:
    pieces, d = pieces_of(str(stored[0] / "*.npy"))
    with Processes(2) as pool:
        killing = Killing(pool)
        other, _ = fit_points(RECIPES["hinge"], Files(pieces, d, (0, 1), executor=killing), 1.0, lambda _: None)
    alone, _ = fit_points(RECIPES["hinge"], Files(pieces, d, (0, 1)), 1.0, lambda _: None)
    assert killing.killed
    assert other.pack() == alone.pack()


class Cancelled(Exception):
    pass


def test_what_is_cancelled_in_mid_pass_ends_in_the_workers_too(tmp_path: Path) -> None:
    parts = [Slow(tmp_path / "a"), Slow(tmp_path / "b")]
    with ThreadPoolExecutor(1) as thread:
        with pytest.raises(Cancelled), Processes(2) as pool:
            passing = thread.submit(Passes(parts, 1, executor=pool), count, None)
            wait_until(lambda: all(each.read() for each in parts))
            pids = pool.pids()
            raise Cancelled
        assert isinstance(passing.exception(), Stopped)
    assert max(each.read() for each in parts) < 1000
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        (np.zeros((3, 1)), InvalidParameter, "the label last"),
        (np.asfortranarray(np.zeros((3, 4))), InvalidParameter, "by columns"),
        (np.array([[0.1, 0.2, 0.0], [0.1, 0.3, 7.0]]), UnknownLabel, "label"),
        (np.array([[0.1, 0.2, 0.5], [0.1, 0.3, 1.0]]), UnknownLabel, "label"),
    ],
)
def test_files_that_cannot_be_fitted(tmp_path: Path, rows: Any, error: type[Exception], words: str) -> None:
    np.save(tmp_path / "a.npy", rows)
    with pytest.raises(error, match=words):
        fit_points(RECIPES["softmax"], Files(*pieces_of(str(tmp_path / "a.npy")), (0, 1)), 1.0, lambda _: None)


def test_a_process_tells_what_is_wrong(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[0.1, 0.2, 0.0], [0.1, 0.3, 7.0]]))
    with Processes(2) as pool, pytest.raises(UnknownLabel, match=r"label 1 is 7\.0"):
        files = Files(*pieces_of(str(tmp_path / "a.npy")), (0, 1), executor=pool)
        fit_points(RECIPES["softmax"], files, 1.0, lambda _: None)


def test_a_file_that_is_not_there_or_cut_off(tmp_path: Path) -> None:
    with pytest.raises(FitFailed, match="cannot be read"):
        pieces_of(str(tmp_path / "a.npy"))
    np.save(tmp_path / "a.npy", np.zeros((10, 3)))
    pieces, d = pieces_of(str(tmp_path / "a.npy"))
    os.truncate(tmp_path / "a.npy", os.path.getsize(tmp_path / "a.npy") - 8)
    with pytest.raises(FitFailed, match="shorter"):
        Files(pieces, d, (0, 1)).passes(View())(count, None)
    with pytest.raises(InvalidParameter, match="there is none"):
        pieces_of(str(tmp_path / "*.parquet"))


def test_the_command(stored: tuple[Path, Array, Any], capsys: pytest.CaptureFixture[str]) -> None:
    folder = stored[0]
    out = str(folder / "fit.npz")
    assert main(["--data", str(folder / "*.npy"), "--reference", "[0.1, -0.05, 0.02]", "--out", out]) == 0
    told = capsys.readouterr()
    assert "5000 points, 2 classes" in told.out
    assert "pass" in told.err
    with np.load(out) as found:
        assert found["weights"].shape == (1, 3)
        assert found["labels"].tolist() == [0, 1]
    assert main(["--data", str(folder / "none.npy")]) == 1
    assert "cannot be read" in capsys.readouterr().err


# ---------------------------------------------------------------------------------- which files


def test_only_files_below_the_roots_are_read(tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    for folder in (root, other, tmp_path / "root2"):
        folder.mkdir()
        (folder / "a.npy").touch()
    (root / "link.npy").symlink_to(other / "a.npy")
    (root / "inside.npy").symlink_to(root / "a.npy")
    roots = (str(root), "s3://bucket/points")
    for url in (f"{root}/a.npy", f"{root}/inside.npy", f"{root}/a*.npy", "s3://bucket/points/*.npy"):
        require_allowed(url, roots)
    for url in (
        *(f"{other}/a.npy", f"{tmp_path}/root2/a.npy", f"{root}/../other/a.npy", f"{root}/link.npy", f"{root}/*.npy"),
        *("a.npy", "/etc/passwd", f"file://{other}/a.npy", f"file://{root}/a.npy", f"{tmp_path}/*/a.npy"),
        *(f"{root}/../other/a.npy://x", f"{root}/a.npy://x", f"{root}/s3://bucket/a.npy"),
        *("s3://bucket/other/a.npy", "s3://bucket/points2/a.npy", "s3://bucket/points/../a.npy"),
        *("simplecache::s3://bucket/points/a.npy", "s3://bucket/points/a.npy::file:///etc/passwd"),
        *(f"{tmp_path}/[r]oot/*.npy", f"{root}/{{a,b}}.npy", "FILE:///etc/passwd"),
        *("http://169.254.169.254/latest", "s3://bucket/points/%2e%2e/a.npy", "s3://bucket/points/a.npy?x"),
    ):
        with pytest.raises(InvalidParameter):
            require_allowed(url, roots)
    with pytest.raises(InvalidParameter, match="fit_data"):
        require_allowed(f"{root}/a.npy", ())
