"""Packages that others import wherever they are installed, for features that nobody here uses"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hidden(*modules: str) -> Iterator[None]:
    """Within the block it is as if these were not installed, unless they are imported already

    A None in sys.modules is how Python is told that there is no such module.
    """
    unused = {*modules} - sys.modules.keys()
    sys.modules.update(dict.fromkeys(unused))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in unused:
            del sys.modules[name]
