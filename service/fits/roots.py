"""Which files a fit over HTTP may read: those below the places that the operator named, and no others.

A request that names a file makes the service read it, and so does one that names a URL: whoever may ask could look at
this machine's files or at its network. So nothing is allowed unless `fit_data` says where.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from service.errors import InvalidParameter


def require_allowed(url: str, roots: Sequence[str]) -> None:
    """Raise unless the URL, or each file that it stands for, is below one of the roots"""
    if not roots:
        raise InvalidParameter("data", url, "left out: no place for data is named, see the setting fit_data")
    parts = url.split("/")
    bad = "::" in url or not url.isprintable() or any(mark in url for mark in "?#%@\\[]{}")
    if bad or ".." in parts or any("*" in part for part in parts[:-1]):
        raise InvalidParameter("data", url, "a plain path or URL, * in its last part alone")
    if url.lower().startswith(("file:", "local:")):
        raise InvalidParameter("data", url, "a path: files of this machine are named without file://")
    if not any(_below(url, root) for root in roots):
        raise InvalidParameter("data", url, "below one of the places that the setting fit_data names")


def _below(url: str, root: str) -> bool:
    """Paths as they are when all links have been followed"""
    if "://" in url or "://" in root:
        return "://" in root and url.startswith(root if root.endswith("/") else f"{root}/")
    path, place = Path(url), Path(root).resolve()
    if not path.is_absolute() or not path.parent.resolve().is_relative_to(place):
        return False
    found = path.parent.glob(path.name) if "*" in path.name else [path]
    return all(each.resolve().is_relative_to(place) for each in found)
