"""python -m service serve · python -m service doctor"""

from __future__ import annotations

import importlib
import sys

from service.process.allocator import keep_memory

if __name__ == "__main__":
    keep_memory()  # before the launcher is imported, which takes its time
    sys.exit(importlib.import_module("service.process.cli").main())
