"""What a release carries: the hashes belong to the pinned versions, the bill of materials is whole and valid."""

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
HASHED = dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\$", (ROOT / "requirements.txt").read_text(), re.MULTILINE))


def test_every_package_of_the_image_is_pinned_and_hashed() -> None:
    text = (ROOT / "requirements.txt").read_text()
    for line in re.sub(r"\\\n\s*", "", text.removeprefix(hashes.HEAD)).split("\n"):
        assert not line or re.fullmatch(r"[a-z0-9-]+==\S+( --hash=sha256:[0-9a-f]{64})+", line), line
    asked = {sbom.normal(Requirement(each).name) for each in hashes.needed()}
    assert asked <= HASHED.keys()
    assert {name: version for name, version in HASHED.items() if name in PINNED} == {
        name: PINNED[name] for name in HASHED if name in PINNED
    }
    assert HASHED.keys() - PINNED.keys() <= {"setuptools"}  # which builds the wheel
    assert "://" not in text


def test_the_bill_of_materials_is_valid_and_whole() -> None:
    made = sbom.document()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(made)) is None
    named = {each["name"]: each["version"] for each in made["components"]}
    assert named.keys() >= {sbom.normal(Requirement(each).name) for each in hashes.needed()} - {"setuptools"}
    assert {"starlette", "llvmlite", "anyio"} <= named.keys()  # what is needed by what is needed
    references = {each["bom-ref"] for each in [*made["components"], made["metadata"]["component"]]}
    assert {each["ref"] for each in made["dependencies"]} == references
    assert {other for each in made["dependencies"] for other in each["dependsOn"]} <= references


def test_the_image_is_installed_by_these_hashes() -> None:
    assert "--require-hashes --no-deps --requirement requirements.txt" in (ROOT / "Dockerfile").read_text()
