"""A session's picture, as notebooks show it."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Protocol

from clients.answers import SessionInfo
from clients.problems import HorocycleError


@dataclass(frozen=True)
class Disk:
    """Points, boundary or regions, and band in the Poincaré disk. A notebook shows it, `save` writes it to a file."""

    svg: str
    title: str = "Poincaré disk"

    def __repr__(self) -> str:
        return f"<Disk of {self.title}: {len(self.svg):,} characters of SVG>"

    def _repr_html_(self) -> str:
        """As an image of its own: the styles and ids of several pictures in one page do not meet"""
        data = b64encode(self.svg.encode()).decode()
        return f'<img width="100%" alt="{escape(self.title)}" src="data:image/svg+xml;base64,{data}">'

    def save(self, path: str | Path) -> Path:
        """Write it to a file"""
        Path(path).write_text(self.svg, encoding="utf-8")
        return Path(path)


class _Drawn(Protocol):
    def disk(self) -> Disk: ...


class _Described(Protocol):
    @property
    def info(self) -> SessionInfo: ...


def shown(session: _Drawn) -> str | None:
    """A session as its picture; None, so that its repr is shown instead, if that cannot be had"""
    try:
        return session.disk()._repr_html_()
    except HorocycleError:
        return None


def ashown(session: _Described) -> str:
    """What is known of a session without asking: a notebook does not wait for a coroutine here"""
    info = session.info
    name, facts = escape(info.name or info.id), f"{info.algorithm}, {info.observed:,} observed"
    return f"<b>{name}</b>: {facts}. Its picture: <code>await session.disk()</code>"
