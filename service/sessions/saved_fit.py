"""A fit as it is kept and exported. A module of its own: the fit worker loads it, and no learner with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class SavedFit:
    """A fit that has ended, for a snapshot"""

    ENDED: ClassVar = ("done", "failed", "cancelled")
    INSTANTS: ClassVar = ("created", "started", "finished")  # in milliseconds, or none
    NUMBERS: ClassVar = (*INSTANTS, "attempts", "progress")
    TOLD: ClassVar = ("report", "failure")

    id: str
    status: str
    asked: Mapping[str, Any]  # its fields, each with its value
    fingerprint: bytes  # of the request that asked for it
    numbers: Mapping[str, Any]
    told: Mapping[str, Any]
    model: bytes = b""  # the packed classifier
