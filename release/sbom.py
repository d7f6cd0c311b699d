"""python -m release.sbom [file]: what is installed of the service and all that it needs, as a CycloneDX document

Components with version, licence, and which needs which, out of the metadata of the packages that are installed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from types import MappingProxyType
from typing import Any

from packaging.requirements import Requirement

PROJECT, EXTRAS = "horocycle", ("serve", "otel")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needs(
    found: Distribution, extras: tuple[str, ...], where: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The packages that a distribution asks for here, or where a marker has other values, with their extras"""
    for line in found.requires or []:
        each = Requirement(line)
        if each.marker is None or any(each.marker.evaluate({**where, "extra": extra}) for extra in ("", *extras)):
            yield normal(each.name), tuple(each.extras)


def collected(
    first: Iterable[tuple[str, tuple[str, ...]]] = ((PROJECT, EXTRAS),),
    where: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, tuple[Distribution, set[str]]]:
    """Name → what is installed of it, and the names that it needs. An extra that is not installed is left out"""
    found: dict[str, tuple[Distribution, set[str]]] = {}
    seen, waiting = set[tuple[str, tuple[str, ...]]](), list(first)
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            here = distribution(name)
        except PackageNotFoundError:
            continue
        asked = list(needs(here, extras, where))
        found.setdefault(name, (here, set()))[1].update(other for other, _ in asked)
        waiting += asked
    return {name: (here, {each for each in others if each in found}) for name, (here, others) in found.items()}


def component(name: str, found: Distribution, kind: str = "library") -> dict[str, Any]:
    about = {"type": kind, "bom-ref": reference(name, found), "name": name, "version": found.version}
    known = found.metadata
    licence = next((known[field] for field in ("License-Expression", "License") if field in known), "")
    told = [{"license": {"name": licence}}] if 0 < len(licence) <= 100 else []
    return {**about, "purl": reference(name, found), **({"licenses": told} if told else {})}


def reference(name: str, found: Distribution) -> str:
    return f"pkg:pypi/{name}@{found.version}"


def document() -> dict[str, Any]:
    found = collected()
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(PROJECT, found[PROJECT][0], "application")},
        "components": [component(name, here) for name, (here, _) in sorted(found.items()) if name != PROJECT],
        "dependencies": [
            {"ref": reference(name, here), "dependsOn": sorted(reference(each, found[each][0]) for each in others)}
            for name, (here, others) in sorted(found.items())
        ],
    }


def main(arguments: list[str]) -> None:
    file = Path(arguments[0] if arguments else "sbom.json")
    file.write_text(json.dumps(document(), indent=1) + "\n")
    sys.stdout.write(f"{file}: {len(document()['components'])} components\n")


if __name__ == "__main__":
    main(sys.argv[1:])
