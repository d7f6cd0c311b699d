"""What a release carries: what is hashed is pinned, the bill of materials is whole and valid."""

from __future__ import annotations

import json
import re
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement

from release import hashes, sbom

ROOT = Path(__file__).parent.parent
PINNED = {
    sbom.normal(name): version
    for name, version in re.findall(r"^([\w.\[\]-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
}
BUILD = {"setuptools"}  # builds the wheel, and is not pinned


def test_every_package_of_the_image_is_pinned() -> None:
    """`make hashes` asks for exactly these"""
    asked = [line.partition("==") for line in hashes.pinned()]
    assert {sbom.normal(Requirement(each).name) for each in hashes.needed()} <= {name for name, _, _ in asked} | BUILD
    assert all(PINNED[name] == version for name, _, version in asked if version)


def test_what_is_hashed_is_what_is_pinned() -> None:
    """Else: `make hashes`"""
    text = (ROOT / "requirements.txt").read_text()
    hashed = dict(re.findall(r"^([\w.-]+)==(\S+) \\\n +--hash=sha256:[0-9a-f]{64}", text, re.MULTILINE))
    assert len(hashed) == text.count("==")
    assert {name: version for name, version in hashed.items() if name not in BUILD} == {
        name: PINNED[name] for name, _, version in (each.partition("==") for each in hashes.pinned()) if version
    }


def test_the_bill_of_materials_is_valid_and_whole() -> None:
    made = sbom.document()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(made)) is None
    named = {each["name"]: each["version"] for each in made["components"]}
    asked = {sbom.normal(Requirement(each).name) for each in hashes.needed()} - BUILD
    assert named.keys() >= {name for name in asked if not name.startswith("opentelemetry")}  # an extra
    assert {"starlette", "llvmlite", "anyio"} <= named.keys()  # what is needed by what is needed
    references = {each["bom-ref"] for each in [*made["components"], made["metadata"]["component"]]}
    assert {each["ref"] for each in made["dependencies"]} == references
    assert {other for each in made["dependencies"] for other in each["dependsOn"]} <= references
