"""Mistakes that newcomers make, each as a call: docs/mistakes.md has the message that each gets.

python -m tests.mistakes URL        write the table anew
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from clients import Client, HorocycleError
from clients.embeddings import to_ball
from clients.files import Choice, read

PAGE = Path(__file__).parent.parent / "docs/mistakes.md"
X = np.array([[0.1, -0.2], [0.3, 0.4]])


def csv(text: str, choice: Choice = Choice()) -> Any:  # noqa: B008 (frozen)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "points.csv"
        path.write_text(text)
        try:
            return read(str(path), choice)
        except HorocycleError as error:
            raise type(error)(str(error).replace(f"{folder}/", "")) from None


#: What was done → the call; `s` is a session of two dimensions and the labels -1 and 1
MISTAKES: dict[str, Callable[[Any], Any]] = {
    "a point outside the ball": lambda s: s.observe([[1.2, 0.5]], [1]),
    "an embedding of the hyperboloid, sent as points of the ball": lambda s: s.observe([[1.5, 1.0, 0.5]], [1]),
    "the hyperboloid, time last": lambda s: to_ball([[1.0, 0.5, 1.5]], "hyperboloid"),
    "a half-space, height first": lambda s: to_ball([[2.0, -1.0]], "halfspace"),
    "a point of another dimension": lambda s: s.observe([[0.1, 0.2, 0.3]], [1]),
    "labels 0 and 1 in a session of -1 and 1": lambda s: s.observe(X, [0, 1]),
    "words as labels": lambda s: s.observe(X, ["cat", "dog"]),
    "labels as text": lambda s: s.observe(X, ["1", "-1"]),
    "booleans for numbers": lambda s: s.observe(X, [True, False]),
    "labels that are halves": lambda s: s.observe(X, [0.5, 1.5]),
    "a label that is missing": lambda s: s.observe(X, [1, None]),
    "fewer labels than points": lambda s: s.observe(X, [1]),
    "NaN in a point": lambda s: s.observe([[0.1, float("nan")]], [1]),
    "text in a point": lambda s: s.observe([[0.1, "0.2"]], [1]),
    "no points": lambda s: s.observe([], []),
    "one point where rows belong": lambda s: s.fit([0.1, 0.2], [1]),
    "an unknown algorithm": lambda s: s.fork(algorithm="svm"),
    "a session that is not there": lambda s: s._client.sessions.get("nothing"),
    "an address without http://": lambda s: Client("localhost:8000"),
    "a csv without its rows": lambda s: csv("x,y,label\n"),
    "a csv whose label is called otherwise": lambda s: csv("x,y,kind\n0.1,0.2,a\n", Choice("label")),
    "a csv with words among the coordinates": lambda s: csv("id,x,y,kind\ncell1,0.1,0.2,a\n"),
    "a csv with a ragged line": lambda s: csv("x,y,kind\n0.1,0.2,a\n0.3,b\n"),
    "a misspelt coordinate system": lambda s: s.predict(X, coordinates="poincaré"),
}


def message(name: str, session: Any) -> str:
    try:
        MISTAKES[name](session)
    except HorocycleError as error:
        return f"{type(error).__name__}: {error}".replace("|", "\\|")
    raise AssertionError(f"{name!r} is no mistake")


def table(session: Any) -> str:
    rows = [f"| {name} | {message(name, session)} |" for name in MISTAKES]
    return "\n".join(["| what was done | what is said |", "|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    with Client(sys.argv[1]) as client:
        head = PAGE.read_text(encoding="utf-8").split("| what was done")[0]
        PAGE.write_text(head + table(client.sessions.open(dimension=2)), encoding="utf-8")
