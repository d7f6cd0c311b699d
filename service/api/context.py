"""What every route needs: the store and the ingest, and how a session is shown."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from starlette.requests import Request

from service.ingest import Ingest
from service.settings import Settings
from service.store import Loaded, Store


@dataclass(frozen=True)
class Context:
    settings: Settings
    store: Store
    ingest: Ingest


def context(request: Request) -> Context:
    found: Context = request.app.state.context
    return found


def shown(loaded: Loaded) -> dict[str, Any]:
    """A session as it is answered"""
    fields = asdict(loaded.spec)
    estimate, budget = fields.pop("estimate"), fields.pop("budget")
    strategic, second = fields["algorithm"] == "strategic", fields["algorithm"] == "second_order"
    return {
        **fields,
        "a": fields["a"] if second else None,
        "budget": ({"estimate": {"initial": budget}} if estimate else budget) if strategic else None,
        **asdict(loaded.counters),
        "status": "live",
    }
