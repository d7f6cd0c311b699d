"""Tenants: whose a session is stands in the id that the store knows it by, so that no route can reach another's.

    store  acme~demo    API  demo, with a key of acme
    store  demo         API  demo, with a key of the default tenant, or without keys

A caller's own id has no ~ in it.
"""

from __future__ import annotations

from service.errors import UnknownSession, outer

__all__ = ["DEFAULT", "inner", "outer", "tenant_of"]

DEFAULT = "default"


def inner(tenant: str, id: str) -> str:
    """The store's id of a tenant's session"""
    if "~" in id:
        raise UnknownSession(id)
    return id if tenant == DEFAULT else f"{tenant}~{id}"


def tenant_of(sid: str) -> str:
    return sid.rpartition("~")[0] or DEFAULT
