"""Exit when the parent dies: EOF on stdin.

Stdin is a pipe whose other end only the parent holds. When the parent exits, also by SIGKILL, the kernel closes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable


def follow_stdin(last: Callable[[], object] = lambda: None) -> None:
    """Read stdin to EOF, then call `last` and exit with code 1. Run it in a thread."""
    while os.read(0, 4096):
        pass
    last()
    os._exit(1)
