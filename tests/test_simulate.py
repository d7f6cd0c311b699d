"""The simulator over HTTP: agents answer the classifier that judges them; and what a user sees when they cannot."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
import pytest

from clients import simulate
from clients.agents import TOLERANCE, Model, best_response
from clients.answers import Commit, Observed
from clients.client import AsyncClient
from clients.game import Game, Gate, in_band, known_margin, point_count
from clients.scenarios import load, names
from tests.running import Running
from tests.stub import Stub, serving

#: Agents everywhere who never move: many of them stay where a rational one would not.
HONEST = """
about = "Nobody [/moves]."
reference = [0.0, 0.0]
budget = 0.5

[[phase]]
rounds = 2
separable = { n = 100, margin = 0.05, radius = 2.0 }
weights = [1.0, 0.5]
mix = { honest = 1.0 }
"""


@pytest.fixture
def run(running: Running, capsys: pytest.CaptureFixture[str]) -> Any:
    """The command, in this process, against the running service"""

    def ran(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = simulate.main(["--url", running.url, *words])
        except SystemExit as stopped:  # argparse
            code = int(str(stopped.code))
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err + captured.out
        return code, captured.out, captured.err

    return ran


@pytest.fixture
def played(run: Any) -> Any:
    """What the command says as JSON: a run an algorithm"""

    def told(*words: str) -> dict[str, Any]:
        code, out, err = run(*words, "--json", "-")
        assert (code, err) == (0, ""), err
        return {each["algorithm"]: each for each in json.loads(out)["runs"]}

    return told


# --------------------------------------------------------------------------------------- A, B, C


@pytest.mark.parametrize("batch", ["1", "3"])
def test_a_b_c_cheat_the_plain_perceptron_for_ever_and_the_strategic_one_once(played: Any, batch: str) -> None:
    """One agent at a time, and all three in a request"""
    runs = played("--scenario", "abc", "--compare", "--rounds", "12", "--batch", batch, "--concurrency", "1")
    assert runs["perceptron"]["mistakes_by_round"] == [2] * 12
    assert runs["strategic"]["mistakes_by_round"] == [1] + [0] * 11
    assert runs["strategic"]["mistakes"] <= runs["strategic"]["bound"]
    assert runs["perceptron"]["bound"] is None  # nothing separates what they showed
    for each in runs.values():
        assert (each["moved"], each["stale"]) == (pytest.approx(1 / 3), 0)


def test_a_b_c_twenty_times_at_once(played: Any) -> None:
    """Twenty clients, each with an A, a B and a C: in whatever order they come, the first is an A"""
    words = ("--scenario", "abc", "--agents", "60", "--batch", "3", "--concurrency", "20", "--rounds", "4")
    runs = played(*words, "--compare")
    assert runs["strategic"]["mistakes_by_round"] == [1, 0, 0, 0]
    assert runs["strategic"]["stale"] > 0  # the others were on their way
    assert min(runs["perceptron"]["mistakes_by_round"]) >= 2


# ------------------------------------------------------------------------------------ 200 at once


def test_200_agents_at_once_and_every_accepted_point_answers_the_classifier_that_judged_it(running: Running) -> None:
    """Within the corrected bound; after a clean pass another one; checked from the answers, and from the events"""
    scenario = load("loans", agents=200, budget=1.0)
    answers: list[tuple[int, Observed]] = []
    models: dict[int, Model] = {}  # by version, as the agents were shown them

    async def remember(response: httpx.Response) -> None:
        if response.request.url.path.endswith("/model") and response.status_code == 200:
            model = Model.from_json(json.loads(await response.aread()))
            models[model.version] = model

    async def play() -> tuple[Game, Any, list[Commit]]:
        async with asyncio.timeout(600), AsyncClient(running.url) as one, AsyncClient(running.url) as other:
            one.http.event_hooks = {"response": [remember]}
            session = await one.sessions.open(
                dimension=2,
                algorithm="strategic",
                reference=scenario.reference.tolist(),
                labels=list(scenario.labels),
                budget=scenario.budget,
            )
            margin = known_margin(session.info, scenario, 1)
            game = Game(
                [session, await other.sessions.get(session.id)],
                scenario,
                batch=1,
                concurrency=200,
                tell=lambda version, told: answers.append((version, told)),
            )
            while 0 not in game.tally.by_round:
                await game.play(1)
            await game.play(1)
            events = []
            async for event in session.events(after="0-0"):
                if isinstance(event, Commit):
                    events.append(event)
                    if event.observed == game.tally.points:
                        return game, await session.certificate(margin), events
            raise AssertionError("the events ended before the points did")

    game, proof, events = asyncio.run(play())
    tally = game.tally
    assert tally.by_round[-2:] == [0, 0]
    assert tally.points == 200 * len(tally.by_round) == sum(told.accepted for _, told in answers)
    assert 0 < tally.mistakes == proof.mistakes <= proof.bound
    assert tally.stale > 0  # there was a race, and it was refused
    assert tally.moved > 0 and tally.in_band == 0

    at, version = 0, 0  # the version an answer names is the one that the answer before it left
    for named, told in sorted(answers, key=lambda each: each[1].session.observed):
        assert (told.session.observed - told.accepted, named) == (at, version)
        assert told.correct is not None and all(told.correct[:-1])
        assert told.correct[-1] == (told.session.version == named)
        at, version = told.session.observed, told.session.version

    said: dict[int, int] = defaultdict(int)
    heard: dict[int, int] = defaultdict(int)
    for named, told in answers:
        said[named] += told.accepted
    version = 0
    for event in events:  # the agents' own geometry says what an answer to that classifier is
        shown = iter(zip(event.points, event.truth or [], strict=True))
        for request in event.data["requests"]:
            heard[request["if_match"]] += request["accepted"]
            assert request["if_match"] == version
            version = request["version"]
            for _, (point, truth) in zip(range(request["accepted"]), shown, strict=False):
                assert truth is not None
                assert best_response(truth, models[request["if_match"]], 1.0)[0] == pytest.approx(point, abs=1e-12)
        assert event.version == version
    assert heard == said


def test_after_a_change_one_goes_ahead_and_then_twice_as_many() -> None:
    async def entered(gate: Gate) -> int:
        """How many get in at once"""
        inside, leave = 0, asyncio.Event()

        async def enter() -> None:
            nonlocal inside
            async with gate:
                inside += 1
                await leave.wait()

        tasks = [asyncio.create_task(enter()) for _ in range(10)]
        await asyncio.sleep(0.01)
        found = inside
        leave.set()
        await asyncio.gather(*tasks)
        assert inside == 10  # and in the end all
        return found

    async def main() -> list[int]:
        gate = Gate(8)
        found = [await entered(gate)]
        for version in (3, 3, 2):
            gate.changed(version)
            found.append(await entered(gate))
            gate.unchanged()
        return found

    assert asyncio.run(main()) == [8, 1, 2, 3]  # version 3 is news once, 2 never


# ---------------------------------------------------------------------------------- unknown budget


def test_the_band_gives_an_unknown_budget_away(played: Any) -> None:
    """From 4 times too high: at most twice the mistakes, in the same order; within a tenth from above"""
    words = ("--scenario", "band", "--rounds", "4", "--batch", "50", "--concurrency", "1")
    known, unknown = played(*words)["strategic"], played(*words, "--estimate")["strategic"]
    assert unknown["budgets"][0] == 4 * known["budget"]
    assert unknown["mistakes"] <= 2 * known["mistakes"]
    assert known["budget"] <= unknown["budget"] <= 1.1 * known["budget"]
    assert unknown["budgets"] == sorted(unknown["budgets"], reverse=True)
    assert unknown["budget"] == pytest.approx(unknown["nearest"][2])  # the third smallest, as published
    assert unknown["bound"] is None and known["mistakes"] <= known["bound"]
    assert "came down from 2 to 0.5" in unknown["alarm"] and known["alarm"] is None


@pytest.mark.parametrize("name", names())
def test_no_shipped_population_of_rational_agents_takes_the_estimate_below_its_budget(played: Any, name: str) -> None:
    """Many at once. The last phase of `drift` has agents that are not rational: it is not played"""
    rounds = {"drift": 12, "band": 2}.get(name, 4)
    own = load(name).budget
    run = played("--scenario", name, "--estimate", str(4 * own), "--rounds", str(rounds), "--batch", "25")["strategic"]
    assert run["budgets"][0] == 4 * own
    assert min(run["budgets"]) >= own * (1 - TOLERANCE)
    if name == "band":
        assert run["budget"] <= 1.1 * own


def test_agents_that_are_not_rational_raise_the_alarm_and_an_estimate_begins_anew(
    played: Any, run: Any, tmp_path: Path
) -> None:
    (tmp_path / "honest.toml").write_text(HONEST)
    honest = ("--scenario", str(tmp_path / "honest.toml"))
    assert "Nobody [/moves]." in run(*honest)[1]
    told = played(*honest)["strategic"]
    assert told["in_band"] > 0 and told["moved"] == 0 and told["bound"] is None
    assert "not rational, or their budget is less than 0.5" in told["alarm"]

    spoiled = played(*honest, "--estimate", "2")["strategic"]
    assert spoiled["budget"] < 0.5
    assert f"--session={spoiled['session']} --estimate 2 begins it anew" in spoiled["alarm"]
    code, out, _ = run("--scenario", "drift", "--rounds", "1", "--session", spoiled["session"], "--estimate", "2")
    assert code == 0
    anew = next(line for line in out.splitlines() if line.startswith("estimate of the budget"))
    assert anew.split()[4:6] == ["2", "→"]
    assert float(anew.split()[6]) >= 0.5


def test_the_forbidden_band_is_below_the_threshold_and_above_the_geodesic() -> None:
    w = np.array([1.0, 0.0])
    model = Model("strategic", 1.0, (-1, 1), np.zeros(2), w, 2.0, budget=0.5, threshold=0.25, version=3)
    scores = np.array([0.1, 0.0, -1e-9, -0.1, -0.4, -0.5, -0.5 + 1e-9, -0.6])
    assert in_band(scores, model).tolist() == [0.1, 0.4]
    plain = Model("perceptron", 1.0, (-1, 1), np.zeros(2), w, 2.0, budget=None, threshold=None, version=3)
    assert in_band(scores, plain).size == 0


# --------------------------------------------------------------------------------- what one is told


def test_the_table_the_json_and_the_csv_say_the_same(run: Any, tmp_path: Path, running: Running) -> None:
    files = [str(tmp_path / name) for name in ("run.json", "run.csv")]
    code, out, err = run("--scenario", "abc", "--rounds", "3", "--compare", "--json", files[0], "--csv", files[1])
    assert (code, err) == (0, "")
    told = json.loads(Path(files[0]).read_text())
    lines = list(csv.DictReader(io.StringIO(Path(files[1]).read_text())))
    assert [line["mistakes"] for line in lines] == [str(each["mistakes"]) for each in told["runs"]] == ["6", "1"]
    assert lines[0]["mistakes_by_round"] == "2 2 2"
    cells = {row[:20].strip(): row[20:].split() for row in out.splitlines()}
    assert cells["points"] == ["9", "9"]
    assert cells["mistakes"] == ["6", "1"]
    assert cells["in the last round"] == ["2", "0"]
    assert cells["bound"] == ["—", f"{told['runs'][1]['bound']:.1f}"]
    assert cells["moved"] == ["33.3%", "33.3%"]
    for each in told["runs"]:
        assert each["picture"] in out
        assert httpx.get(each["picture"]).headers["content-type"] == "image/svg+xml"


def test_a_session_by_name_is_opened_and_then_gone_on_with(played: Any) -> None:
    words = ("--scenario", "abc", "--rounds", "2", "--session", f"by-name-{uuid4().hex}")
    first, second = played(*words)["strategic"], played(*words)["strategic"]
    assert first["session"] == second["session"] == words[-1]
    assert (first["mistakes"], second["mistakes"]) == (1, 0)
    assert first["margin"] == load("abc").phase(0).margin and first["mistakes"] <= first["bound"]
    assert second["bound"] is None  # who knows what came before


def test_where_no_margin_is_known_it_is_that_of_the_points_shown(played: Any) -> None:
    """Two populations, one after another, with no classifier for both: nothing is proven; each alone has a bound"""
    turned = played("--scenario", "drift", "--rounds", "7")["strategic"]
    assert turned["margin"] is None and turned["bound"] is None
    alone = played("--scenario", "drift", "--rounds", "2")["strategic"]
    assert alone["margin"] == load("drift").phase(0).margin and alone["mistakes"] <= alone["bound"]


def test_the_points_of_so_many_rounds_are_counted() -> None:
    scenario = load("drift")
    for rounds in (1, 6, 7, 12, 13, 18, 30):
        assert point_count(scenario, rounds) == sum(len(scenario.phase(turn).population.X) for turn in range(rounds))


# --------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--budget 0", "'0' is not a positive number"),
        ("--budget -1", "'-1' is not a positive number"),
        ("--budget nan", "'nan' is not a positive number"),
        ("--estimate 0", "'0' is not a positive number"),
        ("--agents 0", "'0' is not a whole number"),
        ("--agents 1000001", "'1000001' is not a whole number from 1 to 1,000,000"),
        ("--rounds x", "'x' is not a whole number"),
        ("--concurrency 1e3", "'1e3' is not a whole number"),
        ("--algorithm svm", "invalid choice: 'svm'"),
        ("--algorithm hyperboloid", "invalid choice"),
        ("--scenario nowhere", "there is no scenario 'nowhere'; there are abc, band"),
        ("--scenario /nowhere.toml", "there is no scenario '/nowhere.toml'"),
        ("--scenario abc --agents 4", "it has 3 agents of its own; 4 are not a multiple of them"),
        ("--scenario loans --budget 100", "some agents would have to leave the ball"),
        ("--algorithm perceptron --estimate", "a perceptron session has no budget to estimate"),
        ("--compare --session s", "--compare plays against two sessions"),
        ("--json - --csv -", "only one of them can have the standard output"),
        ("--json /nowhere/x.json", "/nowhere/x.json cannot be written: No such file or directory"),
        ("--url nowhere", "'nowhere' is no address of a service"),
        ("--url http://127.0.0.1:x", "is no address: Invalid port"),
        ("--key ключ", "printable ASCII"),
        ("--session a/b", "'a/b' is no id of a session"),
    ],
)
def test_what_makes_no_sense_is_said(run: Any, words: str, said: str) -> None:
    code, out, err = run(*words.split())
    assert code == 2
    assert said in " ".join(err.split())
    assert out == ""


@pytest.mark.parametrize(
    ("session", "words", "said"),
    [
        (
            {"dimension": 3, "reference": "origin", "algorithm": "strategic"},
            "",
            "has 3 dimensions, the agents of loans have 2",
        ),
        ({"dimension": 2, "reference": "origin", "algorithm": "perceptron"}, "", "is perceptron, not strategic"),
        ({"dimension": 2, "algorithm": "hyperboloid"}, "", "no reference point to measure an agent's cost at"),
        ({"dimension": 2, "reference": "origin", "algorithm": "strategic", "curvature": 2.0}, "", "curvature −2"),
        (
            {"dimension": 2, "reference": "origin", "labels": [1, 2, 3]},
            "--algorithm perceptron",
            "has 3 labels; agents want one of two",
        ),
        (
            {"dimension": 2, "reference": "origin", "algorithm": "strategic"},
            "--estimate 4",
            "this session estimates none",
        ),
    ],
)
def test_a_session_that_these_agents_cannot_play_against(
    run: Any, http: httpx.Client, session: dict[str, Any], words: str, said: str
) -> None:
    id = http.post("/sessions", json=session).json()["id"]
    code, out, err = run(f"--session={id}", *words.split())  # it may begin with a hyphen
    assert (code, out) == (2, "")
    assert said in err
    assert http.get(f"/sessions/{id}").json()["observed"] == 0


@pytest.mark.parametrize(
    ("was", "written", "said"),
    [
        ("rounds = 2", "rounds = 0", "a phase has 0 rounds"),
        ("weights = [1.0, 0.5]", "weights = [0.0, 0.0]", "no geodesic has these"),
        ("margin = 0.05", "margin = 1.999999", "hardly anything within 2.0 is 1.999999 from the geodesic"),
        ("honest = 1.0", "greedy = 1.0", "there is no kind of agent 'greedy'"),
        ("budget = 0.5", "", "'budget' is missing"),
        ("budget = 0.5", "budget = ", "Invalid value"),
        ("[[phase]]", "[phase]", "has no attribute"),
    ],
)
def test_a_scenario_that_cannot_be_read_is_said(run: Any, tmp_path: Path, was: str, written: str, said: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(HONEST.replace(was, written))
    code, out, err = run("--scenario", str(path))
    assert (code, out) == (2, "")
    assert err.startswith(f"simulate: {path}: ") and said in err


def test_the_page_about_agents_lists_what_there_is() -> None:
    page = (Path(__file__).parent.parent / "docs/agents.md").read_text()
    listed = page.split("## Options\n")[1].split("\n## ")[0]
    options = {word for action in simulate.parser()._actions for word in action.option_strings if word != "-h"}
    shown = {"--help", "--scenario", "--agents", "--budget", "--algorithm"} | set(re.findall(r"--[a-z]+", listed))
    assert shown == options
    assert re.findall(r"^\| `(\w+)` \|", page.split("## Scenarios\n")[1].split("\n## ")[0], re.MULTILINE) == [
        "abc", "loans", "taxonomy", "drift", "band",
    ]  # fmt: skip
    assert set(names()) == {"abc", "loans", "taxonomy", "drift", "band"}


def test_a_dead_server_is_said_soon(capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    assert simulate.main(["--url", "http://127.0.0.1:9"]) == 1
    assert time.monotonic() - began < 10
    assert "http://127.0.0.1:9 does not answer (tried 3 times)" in capsys.readouterr().err


class Guarded(Stub):
    """A service that wants the key "right\""""

    def do_POST(self) -> None:
        self.body()
        right = self.headers.get("authorization") == "Bearer right"
        self.refuse(418 if right else 401, "unauthenticated", detail="no such key")


def test_a_wrong_key_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Guarded) as url:
        assert simulate.main(["--url", url, "--key", "wrong"]) == 1
        assert "the service does not take this key (--key): no such key" in capsys.readouterr().err
        assert simulate.main(["--url", url, "--key", "right"]) == 1
        assert "key (--key)" not in capsys.readouterr().err  # the right one was sent


def test_ctrl_c_in_the_middle_of_a_run(running: Running, http: httpx.Client) -> None:
    id = f"interrupted-{uuid4().hex}"
    command = [sys.executable, "-m", "clients.simulate", "--url", running.url, "--rounds", "100000", "--session", id]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 30
        while http.get(f"/sessions/{id}").json().get("observed", 0) < 300:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        while process.poll() is None and time.monotonic() < deadline:
            process.send_signal(signal.SIGINT)  # once would do
            time.sleep(0.001)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "simulate: interrupted"
    assert f"session {id}: " in err and "mistakes so far" in err
    assert "Traceback" not in err
    found = http.get(f"/sessions/{id}").json()
    assert http.post(f"/sessions/{id}/observe", json={"point": [0.1, 0.2], "label": "granted"}).status_code == 200
    assert found["status"] == "live"
