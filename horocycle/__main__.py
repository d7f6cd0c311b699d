"""python -m horocycle: the same as the command."""

from __future__ import annotations

import sys

from horocycle.cli import main

if __name__ == "__main__":
    sys.exit(main())
