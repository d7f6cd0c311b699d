"""python -m tests.container [python]: the Dockerfile, step by step, in a folder of its own; no Docker is needed.

The paths of the image are those below the folder; `COPY --from=build` leaves what the build stage made where it is, as
a virtual environment does not like to be moved. What comes of it is started as the image would be, by the same user,
and asked by the image's own health check. Takes a minute or two, so no test runs it. It has to be run by root, with a
Python that every user may run.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: What of the image's paths is ours; the rest is the base image's.
OWN = ("/opt/horocycle", "/var/cache/horocycle", "/var/lib/horocycle", "/build")


@dataclass(frozen=True)
class Step:
    """One instruction of a Dockerfile."""

    stage: str
    verb: str
    words: str  # as written

    @property
    def command(self) -> list[str]:
        """Of CMD and HEALTHCHECK, in their JSON form"""
        found: list[str] = json.loads(self.words[self.words.index("[") :])
        return found


def steps(text: str) -> Iterator[Step]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    stage = ""
    for line in "\n".join(lines).replace("\\\n", "").splitlines():
        verb, _, words = line.partition(" ")
        if verb == "FROM":
            _, _, name = words.partition(" AS ")
            stage = name or "final"
        yield Step(stage, verb, " ".join(words.split()) if verb in ("ENV", "COPY") else words.strip())


def dockerfile() -> list[Step]:
    return list(steps((ROOT / "Dockerfile").read_text()))


def variables(step: Step) -> dict[str, str]:
    return dict(each.split("=", 1) for each in shlex.split(step.words))


def sources(step: Step) -> list[str]:
    """What a COPY takes out of the repository"""
    words = step.words.split()
    return [] if "--from=build" in words else words[:-1]


def context(folder: Path) -> None:
    """What .dockerignore leaves: its exceptions, without caches"""
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line.startswith("!"):
            source, target = ROOT / line[1:], folder / line[1:]
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)


@dataclass
class Build:
    folder: Path
    env: dict[str, str]
    at: Path
    user: int = 0

    def place(self, text: str) -> str:
        for path in OWN:
            text = text.replace(path, f"{self.folder}{path}")
        return text

    def do(self, step: Step) -> None:
        sys.stdout.write(f"{step.stage:6} {step.verb} {step.words[:110]}\n")
        sys.stdout.flush()
        if step.verb == "ENV":
            for name, value in variables(step).items():
                self.env[name] = self.place(value).replace("$PATH", self.env["PATH"])
        elif step.verb == "WORKDIR":
            self.at = Path(self.place(step.words))
            self.at.mkdir(parents=True, exist_ok=True)
        elif step.verb == "RUN":
            subprocess.run(["sh", "-ec", self.place(step.words)], cwd=self.at, env=self.env, check=True)
        elif step.verb == "COPY" and sources(step):
            for name in sources(step):
                source, target = self.folder / "context" / name, self.at / step.words.split()[-1]
                if source.is_dir():
                    shutil.copytree(source, target)
                else:
                    shutil.copy(source, target)
        elif step.verb == "COPY":
            target = Path(self.place(step.words.split()[-1]))
            assert target.exists(), f"the build stage made no {target}"
            for path in [target, *target.rglob("*")] if "--chown" in step.words else []:
                os.chown(path, 10001, 10001, follow_symlinks=False)
        elif step.verb == "USER":
            self.user = int(step.words.split(":")[0])


def main(python: str) -> None:
    with tempfile.TemporaryDirectory(prefix="horocycle-container-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "bin").mkdir()
        (folder / "bin/python").symlink_to(python)
        (folder / "context").mkdir()
        context(folder / "context")
        build = Build(folder, {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": name}, folder)
        planned = dockerfile()
        for step in planned:
            if step.stage == "final" and step.verb == "FROM":
                build.env = {"PATH": build.env["PATH"], "HOME": "/nonexistent"}
            build.do(step)
        start(build, planned)


def start(build: Build, planned: list[Step]) -> None:
    """As the image would: this user, this environment, this command; and is it healthy?"""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {**build.env, "HOROCYCLE_PORT": str(port), "HOROCYCLE_KEYS": "off"}
    by = {step.verb: step.command for step in planned if step.verb in ("CMD", "HEALTHCHECK")}
    before = compiled(build)
    began = time.monotonic()
    as_user = {"user": build.user, "group": build.user, "extra_groups": []}
    with subprocess.Popen(by["CMD"], cwd=build.at, env=env, **as_user) as process:  # type: ignore[call-overload]
        try:
            while subprocess.run(by["HEALTHCHECK"], env=env, stderr=subprocess.DEVNULL, **as_user).returncode:  # type: ignore[call-overload]
                assert process.poll() is None and time.monotonic() - began < 60
            sys.stdout.write(f"healthy after {time.monotonic() - began:.1f} s as user {build.user}\n")
            simulate = ["python", "-m", "clients.simulate", "--url", f"http://127.0.0.1:{port}", "--compare"]
            subprocess.run([*simulate, "--scenario", "abc"], cwd="/", env=env, check=True, **as_user)  # type: ignore[call-overload]
            assert compiled(build) == before, "the loops were compiled again"
            sys.stdout.write(f"{len(before)} compiled files, none of them new\n")
        finally:
            process.terminate()
    assert process.returncode == 0


def compiled(build: Build) -> dict[Path, float]:
    return {path: path.stat().st_mtime for path in (build.folder / "var/cache/horocycle").rglob("*.nb?")}


if __name__ == "__main__":
    main(*sys.argv[1:] or ["/usr/bin/python3"])
