"""python -m release.hashes: writes requirements.txt, every package of the service with the hashes of its wheels

For the image: CPython 3.11 on Linux, x86_64 and aarch64. Wheels differ with the version of Python and the platform, so
for the others constraints.txt pins versions alone. pip takes no hashes for a project itself (`-e .` or `.`), which is
therefore installed after them with --no-deps.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from release import sbom

ROOT = Path(__file__).parent.parent
PYTHON, PROCESSORS = "3.11", ("x86_64", "aarch64")
#: Its newest release: redis-py wants a package more before 3.11.3, which Debian 12 has
IMAGE = {"python_version": PYTHON, "python_full_version": f"{PYTHON}.99"}
#: Versions of glibc that the image has, as wheels name them
GLIBC = ("2_17", "2_24", "2_26", "2_27", "2_28", "2_31", "2_34")
FOR = f"CPython {PYTHON}, Linux, {' and '.join(PROCESSORS)}"
HEAD = f"""\
# Written by `make hashes`: the service and what it needs, for the image ({FOR}).
# pip install --require-hashes --no-deps -r requirements.txt, then pip install --no-deps --no-build-isolation .
"""


def needed() -> list[str]:
    """What the service asks for, and what builds it"""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    return [
        *project["project"]["dependencies"],
        *extras["serve"],
        *extras["otel"],
        *project["build-system"]["requires"],
    ]


def pinned() -> list[str]:
    """All that is installed of the service here, as constraints.txt has it, and what builds it"""
    versions = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    known = {sbom.normal(name): version for name, version in versions.items()}
    asked = [Requirement(each) for each in needed()[:-1]]
    names = sorted(sbom.collected(((sbom.normal(each.name), tuple(each.extras)) for each in asked), IMAGE))
    return [*(f"{name}=={known[name]}" for name in names), *needed()[-1:]]


def resolved(processor: str) -> dict[str, tuple[str, str]]:
    """Name → version and hash of the wheel that pip would install there"""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        platforms = [f"--platform=manylinux_{each}_{processor}" for each in GLIBC]
        platforms += [f"--platform=manylinux{each}_{processor}" for each in ("2014", "1")]
        how = [
            "--quiet",
            "--disable-pip-version-check",
            "--dry-run",
            "--ignore-installed",
            "--only-binary=:all:",
            "--no-deps",
        ]
        where = [f"--python-version={PYTHON}", *platforms, f"--target={folder}/none", f"--report={report}"]
        subprocess.run([sys.executable, "-m", "pip", "install", *how, *where, *pinned()], check=True)
        found: list[dict[str, Any]] = json.loads(report.read_text())["install"]
    return {
        re.sub(r"[-_.]+", "-", each["metadata"]["name"]).lower(): (
            each["metadata"]["version"],
            each["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for each in found
    }


def main() -> None:
    found = [resolved(processor) for processor in PROCESSORS]
    lines = [HEAD]
    for name in sorted({name for each in found for name in each}):
        versions = {each[name][0] for each in found if name in each}
        assert len(versions) == 1, f"{name} has several versions: {versions}"
        hashes = sorted({each[name][1] for each in found if name in each})
        lines.append(" \\\n    ".join([f"{name}=={versions.pop()}", *(f"--hash=sha256:{each}" for each in hashes)]))
    (ROOT / "requirements.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
