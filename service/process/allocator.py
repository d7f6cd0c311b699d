"""glibc's allocator, told to keep what it has. It listens only when a process starts, so the process starts again."""

from __future__ import annotations

import os
import sys

#: Bodies of a megabyte come and go: their memory is not to be given back each time.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(256 << 20), "MALLOC_TRIM_THRESHOLD_": str(512 << 20), "MALLOC_ARENA_MAX": "2"}


def keep_memory() -> None:
    if sys.platform == "linux" and not MALLOC.keys() <= os.environ.keys():
        os.execve(sys.executable, [sys.executable, "-m", "service", *sys.argv[1:]], {**MALLOC, **os.environ})
