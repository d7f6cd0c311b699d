"""python -m service serve · python -m service doctor"""

from __future__ import annotations

import sys

from service.launcher import main

if __name__ == "__main__":
    sys.exit(main())
