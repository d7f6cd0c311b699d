"""What a benchmark prints is kept in results/ as well."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path

FOLDER = Path(__file__).parent / "results"


class _Both(StringIO):
    def write(self, text: str) -> int:
        sys.__stdout__.write(text)  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]
        return super().write(text)


@contextmanager
def kept(name: str) -> Iterator[None]:
    """A run that ends well replaces results/<name>.txt"""
    with redirect_stdout(_Both()) as both:
        yield
    (FOLDER / f"{name}.txt").write_text(both.getvalue())
