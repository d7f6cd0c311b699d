"""Exit when the parent dies: EOF on stdin.

Stdin is a pipe whose other end only the parent holds. When the parent exits, also by SIGKILL, the kernel closes it.
"""

from __future__ import annotations

import os


def follow_stdin() -> None:
    """Read stdin to EOF, then exit with code 1. Run it in a thread."""
    while os.read(0, 4096):
        pass
    os._exit(1)
