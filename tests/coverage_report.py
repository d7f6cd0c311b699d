"""What `make test` says about coverage: one line, and the files that are covered badly.

It counts the rooms whose code runs in the tests' own process. The others (api, store, ingest, fits, process) run in
workers, which only `make coverage` measures: traced, a service needs 1.5 times the CPU to start, and tests that kill
and time it would notice.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from coverage import Coverage

ROOMS = ["service/geometry.py", "service/learners/*", "service/batch/*", "service/sessions/*", "clients/*"]
ENOUGH = 90  # percent


def summary(report: dict[str, Any]) -> str:
    """The report of coverage.py, in a few lines"""
    lines = [f"coverage in process: {report['totals']['percent_covered']:.0f} % of the lines"]
    for name, file in sorted(report["files"].items()):
        if file["summary"]["percent_covered"] < ENOUGH:
            lines.append(f"  {file['summary']['percent_covered']:3.0f} %  {name}")
    return "\n".join([*lines, "`make coverage` measures the workers too"])


def main() -> None:
    coverage = Coverage()
    coverage.load()
    with TemporaryDirectory() as folder:
        file = Path(folder) / "coverage.json"
        coverage.json_report(outfile=str(file), include=ROOMS)
        sys.stdout.write(summary(json.loads(file.read_text())) + "\n")


if __name__ == "__main__":
    main()
