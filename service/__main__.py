"""python -m service serve · python -m service doctor"""

from __future__ import annotations

import gc
import importlib
import sys

from service.hiding import hidden

if __name__ == "__main__":
    gc.disable()  # an import makes objects to keep: to look among them for garbage would take a sixth of its time
    with hidden("opentelemetry.sdk.metrics"):  # redis-py's own metrics
        cli = importlib.import_module("service.process.cli")
    gc.freeze()
    gc.enable()
    sys.exit(cli.main())
