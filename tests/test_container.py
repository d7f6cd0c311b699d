"""The container's files say what the code says. That the Dockerfile's steps work: `python -m tests.container`."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from typing import Any

import pytest
from ruamel.yaml import YAML

from clients import simulate
from service.settings import Settings
from tests.container import ROOT, Step, context, dockerfile, sources, steps, variables
from tests.running import Running

COMPOSE: dict[str, Any] = YAML(typ="safe").load(ROOT / "docker-compose.yml")
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = ("service", "service-two", "fits", "simulator")


def of(verb: str, stage: str = "final") -> list[Step]:
    return [step for step in dockerfile() if (step.verb, step.stage) == (verb, stage)]


def environment() -> dict[str, str]:
    return {name: value for step in of("ENV") for name, value in variables(step).items()}


def settings(env: dict[str, str]) -> Settings:
    """What the service reads there; a name that it does not know is a mistake"""
    known = {f"HOROCYCLE_{name.upper()}": name for name in Settings.model_fields}
    given = {name: value for name, value in env.items() if name.startswith("HOROCYCLE_")}
    assert given.keys() <= known.keys()
    read = {known[name]: value for name, value in given.items()}
    return Settings.model_validate({**read, "redis_url": env.get("REDIS_URL")})


def runs(command: list[str]) -> bool:
    """python -m something that is there"""
    return command[:2] == ["python", "-m"] and importlib.util.find_spec(command[2]) is not None


# ------------------------------------------------------------------------------------- Dockerfile


def test_a_dockerfile_is_read_as_docker_would() -> None:
    text = '# no\nFROM a AS build\nENV A=1 \\\n    B="2 3"\nRUN x && \\\n    y\nFROM b\nCMD ["c", "d"]\n'
    read = list(steps(text))
    assert [(step.stage, step.verb) for step in read] == [
        ("build", "FROM"), ("build", "ENV"), ("build", "RUN"), ("final", "FROM"), ("final", "CMD"),
    ]  # fmt: skip
    assert variables(read[1]) == {"A": "1", "B": "2 3"}
    assert read[-1].command == ["c", "d"]


def test_all_that_is_copied_is_there_and_nothing_else_goes_to_the_builder(tmp_path: Any) -> None:
    context(tmp_path)
    taken = {name for step in of("COPY", "build") for name in sources(step)}
    assert taken == {path.name for path in tmp_path.iterdir()}
    for name in taken:
        assert (ROOT / name).exists()
    assert (tmp_path / "service/learners/loops.py").exists()
    assert (tmp_path / "clients/scenarios/abc.toml").exists()
    assert not list(tmp_path.rglob("__pycache__"))


def test_both_stages_have_one_base_and_the_last_one_builds_nothing() -> None:
    build, final = of("FROM", "build")[0].words.removesuffix(" AS build"), of("FROM")[0].words
    assert build == final and re.fullmatch(r"python:3\.\d+-slim", final)
    assert all(not sources(step) for step in of("COPY"))
    assert not any(word in step.words for step in of("RUN") for word in ("pip", "apt", "gcc"))


def test_the_loops_are_compiled_for_any_processor_and_found_where_they_were_put() -> None:
    built = {name: value for step in of("ENV", "build") for name, value in variables(step).items()}
    for name, value in {"NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": "/var/cache/horocycle"}.items():
        assert built[name] == environment()[name] == value
    assert any("import service.learners" in step.words for step in of("RUN", "build"))
    assert any("--chown=10001:10001 /var/cache/horocycle" in step.words for step in of("COPY"))


def test_the_image_serves_as_a_user_without_a_name() -> None:
    assert [step.words for step in of("USER")] == ["10001:10001"]
    assert [step.verb for step in dockerfile() if step.stage == "final"].index("USER") > 0
    read = settings(environment())
    assert read.with_keys  # it listens on every address
    assert (read.host, [str(read.port)]) == ("0.0.0.0", [step.words for step in of("EXPOSE")])
    assert str(read.data) == of("WORKDIR")[0].words
    (command,) = of("CMD")
    assert runs(command.command) and command.command[2:] == ["service", "serve"]


def test_the_health_check_tells_a_ready_service_from_none(running: Running) -> None:
    (check,) = of("HEALTHCHECK")
    _, *words = check.command
    codes = [
        subprocess.run([sys.executable, *words], env={"HOROCYCLE_PORT": port}, capture_output=True).returncode
        for port in (running.url.rsplit(":", 1)[1], "9")
    ]
    assert codes == [0, 1]


# ------------------------------------------------------------------------------------ compose file


def test_the_compose_file_is_one() -> None:
    """By the schema of compose-spec, as check-jsonschema carries it"""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, str(ROOT / "docker-compose.yml")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_store_keeps_what_was_acknowledged() -> None:
    store = SERVICES["store"]
    options = dict(zip(store["command"][1::2], store["command"][2::2], strict=True))
    assert options["--appendonly"] == "yes" and options["--appendfsync"] == "always"
    assert options["--maxmemory-policy"] == "noeviction"
    assert store["volumes"] == ["store:/data"] and "store" in COMPOSE["volumes"]
    assert "valkey-cli ping" in store["healthcheck"]["test"][1]
    assert "ports" not in store


@pytest.mark.parametrize("name", SERVICES)
def test_nobody_has_more_rights_than_needed(name: str) -> None:
    found = SERVICES[name]
    assert found["read_only"] is True
    assert found["cap_drop"] == ["ALL"]
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert found["mem_limit"] and found["pids_limit"] and found["cpus"]
    assert not {"privileged", "cap_add", "network_mode", "pid", "devices"} & found.keys()
    assert found.get("user", "10001:10001") not in ("root", "0", "0:0")


def test_the_services_are_told_what_they_can_read() -> None:
    service, two = settings(SERVICES["service"]["environment"]), settings(SERVICES["service-two"]["environment"])
    assert service == two
    assert (service.workers, service.fit_workers, service.redis_url) == (1, 0, "redis://store:6379/0")
    assert service.with_keys and {"localhost", "127.0.0.1", "proxy"} == set(service.hosts)
    assert settings(SERVICES["fits"]["environment"]).redis_url == service.redis_url
    assert not any("ports" in SERVICES[name] for name in SERVICES if name != "proxy")
    for name in OURS:
        assert SERVICES[name]["image"] == SERVICES["service"]["image"]
        for volume in SERVICES[name].get("volumes", []):
            assert volume == f"compiled:{environment()['NUMBA_CACHE_DIR']}"
    assert runs(SERVICES["fits"]["command"])
    assert SERVICES["fits"]["healthcheck"] == SERVICES["simulator"]["healthcheck"] == {"disable": True}


def test_the_simulator_is_asked_for_what_it_can_do() -> None:
    simulator = SERVICES["simulator"]
    command = simulator["command"]
    assert runs(command) and command[2] == "clients.simulate"
    plan = simulate.planned(simulate.parser().parse_args(command[3:]))
    assert plan.url == f"http://proxy:{SERVICES['proxy']['environment']['PROXY_LISTEN'].removeprefix('*:')}"
    assert plan.algorithms == ("perceptron", "strategic")
    assert simulator["profiles"] == ["simulate"]
    assert simulator["depends_on"] == {"proxy": {"condition": "service_started"}}


def test_the_proxy_is_told_what_its_file_asks_for() -> None:
    """tests/faults/test_reverse_proxy.py runs it"""
    proxy, port = SERVICES["proxy"], settings(environment()).port
    told = proxy["environment"]
    assert set(told) == set(re.findall(r"\$\{(\w+)\}", (ROOT / "haproxy.cfg").read_text()))
    assert [told["PROXY_ONE"], told["PROXY_TWO"]] == [f"{name}:{port}" for name in ("service", "service-two")]
    assert proxy["ports"] == [f"127.0.0.1:8000:{told['PROXY_LISTEN'].removeprefix('*:')}"]
    [source, _, mode] = proxy["volumes"][0].split(":")
    assert (ROOT / source).is_file() and mode == "ro"
