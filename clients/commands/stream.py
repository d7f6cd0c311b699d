"""horocycle stream: a file to a session, with a progress bar, running accuracy, a hold-out, and resuming after a cut.

What is sent is a fixed sequence: the file's rows, without those that are held out, shuffled by the seed, as many times
as there are passes. So the session's own count of observed points says where to go on.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from clients.answers import Label
from clients.arrays import plain
from clients.bodies import rows as rows_of
from clients.calls import Placing, chosen, width
from clients.client import Client, Session
from clients.commands.options import add_settings, parser, run, settings_of
from clients.files import READERS, Choice, FileProblem, Table, blocks, read
from clients.problems import HorocycleError, LogTrimmed, UnknownSession

EXAMPLES = """  horocycle stream cells.npz --shuffle                    a new session; the paper's x_test is held out
  horocycle stream cells.csv --label cell_type --holdout 0.2
  horocycle stream big.npy --session demo --resume        go on where it was cut off
  horocycle stream vectors.parquet --coordinates euclidean --columns x,y --label class
  tail -f points.jsonl | horocycle stream - --labels no,yes --session live
"""
#: Of the band: it holds at every moment, with this probability of ever being left.
ALPHA = 0.05
#: How many of the newest retained points are compared with the file before it is resumed.
COMPARED = 100


def main(argv: Sequence[str] | None = None) -> int:
    found = parser("stream", "Send labelled points to a session: each is predicted, then learned.", EXAMPLES)
    found.add_argument("file", help=f"{', '.join(READERS)}; - for stdin, csv or jsonl")
    found.add_argument("--session", help="its id; one that is not there is opened")
    found.add_argument("--resume", action="store_true", help="leave out what the session has observed of this file")
    found.add_argument("--label", help="the column of the label, by name or number; the array, of an npz")
    found.add_argument("--columns", help="the columns of the coordinates: a,b,c; the array, of an npz")
    found.add_argument("--format", choices=sorted(READERS), help="if the file's name does not tell")
    found.add_argument("--coordinates", choices=("poincare", "hyperboloid", "klein", "halfspace", "euclidean"))
    found.add_argument("--outside", choices=("refuse", "clip"), help="points beyond the radius limit")
    found.add_argument("--shuffle", nargs="?", type=int, const=0, default=None, metavar="SEED", help="in random order")
    found.add_argument("--passes", type=int, default=1, help="how often (1)")
    found.add_argument("--holdout", type=float, default=0.0, help="hold this share back, and predict it in the end")
    found.add_argument("--rate", type=float, default=None, help="points a second, at most")
    found.add_argument("--batch", type=int, default=None, help="points a request, at most")
    found.add_argument("--quiet", action="store_true", help="no progress, only the result")
    add_settings(found)
    given = found.parse_args(argv)
    for name, good in (("holdout", 0 <= given.holdout < 1), ("passes", given.passes >= 1)):
        if not good:
            found.error(f"--{name} is {getattr(given, name)}: --holdout is from 0 to 1, --passes 1 or more")
    return run("stream", lambda client: _stream(client, given), given)


# -------------------------------------------------------------------------------------------------- the sequence


@dataclass(frozen=True)
class Sending:
    """Rows of a table in the order in which they are sent, pass after pass"""

    table: Table
    order: NDArray[np.int64]  # of one pass
    passes: int

    def __len__(self) -> int:
        return len(self.order) * self.passes

    def part(self, start: int, n: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """At most n rows from position `start`, of one pass"""
        at = start % len(self.order)
        rows = self.order[at : at + n]
        ahead = rows[-1] - rows[0] == len(rows) - 1 and bool((np.diff(rows) == 1).all())
        found = slice(int(rows[0]), int(rows[-1]) + 1) if ahead else rows  # a slice of a mapped file is read at once
        return self.table.X[found], self.table.y[found]


def sequence(table: Table, shuffle: int | None, passes: int, holdout: float) -> tuple[Sending, Table | None]:
    """What is sent, and what is held out: by the seed, or 0"""
    n, rng = len(table), np.random.default_rng(shuffle or 0)
    order = np.arange(n)
    held = None if table.held_out is None else Table(*table.held_out)
    if holdout:
        back = rng.permutation(n)[: round(holdout * n)]
        held = Table(table.X[np.sort(back)], table.y[np.sort(back)])
        order = np.setdiff1d(order, back)
        if not len(order):
            raise FileProblem(f"--holdout {holdout} leaves no point of {n} to learn from")
    return Sending(table, rng.permutation(order) if shuffle is not None else order, passes), held


def looks_sorted(y: NDArray[Any]) -> bool:
    """Whether labels come in runs: far fewer changes than a random order has, n·(1 − Σ p²)"""
    _, counts = np.unique(y, return_counts=True)
    expected = len(y) * (1 - np.sum((counts / len(y)) ** 2))
    return len(y) >= 20 and int(np.count_nonzero(y[1:] != y[:-1])) < float(expected) / 4


def band(n: int) -> float:
    """Half the width of a confidence sequence for the mean of n bounded steps, valid at every n at once:

    r = 0.85·√((ln ln 2n + 0.72·ln(10.4/α))/n)    Howard, Ramdas, McAuliffe, Sekhon (2021), equation 2, for [0, 1]
    """
    return 0.85 * math.sqrt((math.log(max(math.log(2 * n), 1.0)) + 0.72 * math.log(10.4 / ALPHA)) / n)


def wilson(right: int, n: int) -> tuple[float, float]:
    """The 95 % interval of Wilson for a share that was measured once"""
    z, p = 1.959964, right / n
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))


# --------------------------------------------------------------------------------------------------- the stream


def _stream(client: Client, given: argparse.Namespace) -> int:
    choice = Choice(given.label, tuple(given.columns.split(",")) if given.columns else (), given.format)
    placing = chosen({"coordinates": given.coordinates, "outside": given.outside})
    whole = given.shuffle is not None or given.passes > 1 or given.holdout or given.resume
    if given.file == "-" and not whole:
        return _as_it_comes(client, given, choice, placing)
    table = read(given.file, choice)
    sent, held = sequence(table, given.shuffle, given.passes, given.holdout)
    if given.shuffle is None and looks_sorted(table.y[sent.order]):
        _warn("the labels come sorted: an online learner then sees one class at a time; --shuffle mixes them")
    classes = table.y if held is None else np.concatenate([table.y, held.y])
    session = _session(client, given, table.X.shape[1], classes, placing)
    start = _resumed(session, sent, placing) if given.resume else 0
    return _report(session, _sent(session, sent, start, given, placing), held, placing)


def _session(client: Client, given: argparse.Namespace, columns: int, y: Any, placing: Placing) -> Session:
    """The one that was named, or a new one with the labels of the file"""
    if given.session is not None:
        try:
            return client.sessions.get(given.session)
        except UnknownSession:
            pass
    settings = settings_of(given)
    settings["id"] = given.session
    if "labels" not in settings:
        found = sorted(set(plain(y)), key=lambda label: (isinstance(label, str), label))
        if len(found) < 2:
            raise FileProblem(f"every label is {found[0]!r}: name two or more with --labels")
        if len(found) > 1000:
            raise FileProblem(f"{len(found)} different labels: is --label the right column?")
        settings["labels"] = found
    extra = width(placing, 0)
    return client.sessions.open(dimension=columns - extra, **settings)


def _resumed(session: Session, sent: Sending, placing: Placing) -> int:
    """How many points of the sequence the session has observed; the newest it keeps must be those of the file"""
    done = session.refresh().observed
    if done > len(sent):
        raise FileProblem(f"session {session.id!r} has observed {done} points, the file has {len(sent)}: not this file")
    first = max(0, done - COMPARED)
    try:
        pages = list(session.log(first)) if done and not placing else []
    except LogTrimmed:
        pages = []
    for page in pages:
        X = np.concatenate([sent.part(i, 1)[0] for i in range(page.start, page.end)])
        if not np.array_equal(X, page.X):
            raise FileProblem(
                f"session {session.id!r} has learned other points: not this file, --shuffle and --holdout"
            )
    return done


@dataclass
class Sent:
    """What was learned in this run"""

    points: int = 0
    mistakes: int = 0
    clipped: int = 0
    began: float = 0.0

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self.began, 1e-9)


def _sent(session: Session, sent: Sending, start: int, given: argparse.Namespace, placing: Placing) -> Sent:
    done, n = Sent(began=time.monotonic()), rows_of(session.info.dimension, given.batch)
    if given.rate:
        n = max(1, min(n, math.ceil(given.rate / 4)))
    with _progress(given.quiet, len(sent), start) as progress:
        at = start
        try:
            while at < len(sent):
                X, y = sent.part(at, n)
                _observe(session, X, y, done, placing)
                at += len(X)
                _shown(progress, done, at)
                _paced(done, given.rate)
        except HorocycleError as error:
            if at > start or start:
                _warn(f"{at} of {len(sent)} points were learned; add --session {session.id} --resume to go on there")
            raise error
    return done


def _observe(session: Session, X: Any, y: Any, done: Sent, placing: Placing) -> None:
    answer = session.observe(np.asarray(X, dtype=np.float64), y, columns=False, **placing)
    done.points += answer.accepted
    done.mistakes += answer.mistakes
    done.clipped += answer.clipped


def _as_it_comes(client: Client, given: argparse.Namespace, choice: Choice, placing: Placing) -> int:
    """stdin, a block at a time: the labels of the first must be all there are, unless --labels says them"""
    done, session = Sent(began=time.monotonic()), None
    with _progress(given.quiet, None, 0) as progress:
        for table in _named(blocks(sys.stdin, choice)):
            session = session or _session(client, given, table.X.shape[1], table.y, placing)
            _observe(session, table.X, table.y, done, placing)
            _shown(progress, done, done.points)
            _paced(done, given.rate)
    assert session is not None  # an empty stdin was refused
    return _report(session, done, None, placing)


def _named(tables: Iterator[Table]) -> Iterator[Table]:
    """A block of 1, 2, 3 among blocks of words is one of words, too"""
    words = False
    for table in tables:
        words = words or table.y.dtype.kind == "U"
        yield Table(table.X, table.y.astype(str) if words else table.y)


def _paced(done: Sent, rate: float | None) -> None:
    if rate:
        time.sleep(max(0.0, done.points / rate - done.seconds))


# --------------------------------------------------------------------------------------------------- what is told


def _progress(quiet: bool, total: int | None, start: int) -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.fields[told]}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    found = Progress(*columns, TimeRemainingColumn(), console=console, disable=quiet or not console.is_terminal)
    found.add_task("stream", total=total, completed=start, told="")
    return found


def _shown(progress: Progress, done: Sent, at: int) -> None:
    told = f"{at:,} points · {done.points / done.seconds:,.0f}/s · accuracy {accuracy(done)}"
    progress.update(progress.tasks[0].id, completed=at, told=told)


def accuracy(done: Sent) -> str:
    """0.921 ± 0.004"""
    if not done.points:
        return "—"
    return f"{1 - done.mistakes / done.points:.4f} ± {band(done.points):.4f}"


def _report(session: Session, done: Sent, held: Table | None, placing: Placing) -> int:
    out = sys.stdout.write
    rate = f"{done.points / done.seconds:,.0f}/s"
    out(f"session   {session.id} ({session.info.algorithm}, {session.info.dimension} dimensions)\n")
    out(f"learned   {done.points:,} points in {done.seconds:.1f} s ({rate}), {done.mistakes:,} mistakes\n")
    out(f"accuracy  {accuracy(done)}, each point predicted before it was learned\n")
    window = session.metrics().window
    if window.accuracy is not None:
        out(f"newest    {window.accuracy:.4f} of {window.points:,}\n")
    if done.clipped:
        out(f"clipped   {done.clipped:,} points were moved to the radius limit\n")
    if held is not None:
        right = _right(session, held, placing)
        low, high = wilson(right, len(held))
        out(f"held out  {right / len(held):.4f} of {len(held):,} (95 %: {low:.4f} to {high:.4f})\n")
    return 0


def _right(session: Session, held: Table, placing: Placing) -> int:
    """How many of the points that were held out are predicted rightly"""
    predicted: list[Label] = session.predict(np.asarray(held.X, dtype=np.float64), **placing).predictions.tolist()
    return sum(told == label for told, label in zip(predicted, plain(held.y), strict=True))


def _warn(text: str) -> None:
    sys.stderr.write(f"horocycle stream: {text}\n")
