"""The page of a service that asks for API keys: real keys, two tenants."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import BrowserContext, Page, Request

from tests.page.browser import wait_for
from tests.running import Running, command, service

NAME = "A secret name"


def key(data: Path, tenant: str) -> str:
    made = command("keys", "add", "--tenant", tenant, "--data", str(data))
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with service(tmp_path_factory.mktemp("locked") / "data", HOROCYCLE_KEYS="on", HOROCYCLE_FIT_WORKERS="0") as found:
        yield found


@pytest.fixture(scope="module")
def ours(locked: Running) -> str:
    return key(locked.data, "ours")


def unlock(page: Page, word: str) -> None:
    field = page.get_by_label("API key")
    field.wait_for()
    assert NAME not in page.content() and page.locator("main").is_hidden()
    field.fill(word)
    field.press("Enter")


def test_nothing_is_shown_without_a_key_and_another_tenant_sees_nothing(
    context: BrowserContext, locked: Running, ours: str
) -> None:
    theirs = key(locked.data, "theirs")
    with httpx.Client(base_url=locked.url, timeout=30, headers={"authorization": f"Bearer {ours}"}) as http:
        http.post("/sessions", json={"id": "mine", "dimension": 2, "name": NAME}).raise_for_status()
        http.post("/sessions/mine/observe", json={"point": [0.1, 0.2], "label": 1}).raise_for_status()
    page, sent = context.new_page(), list[Request]()
    page.on("request", lambda request: sent.append(request))
    page.goto(f"{locked.url}/sessions/mine/live")
    unlock(page, "hc_wrong_key")
    page.get_by_text("That key was refused").wait_for()
    unlock(page, ours)
    page.get_by_role("heading", name=NAME).wait_for()
    wait_for(page, "globalThis.horocycle?.state === 'live' && horocycle.scene.points.next === 1")

    assert page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
    assert not [each.url for each in sent if ours in each.url]
    events = [each for each in sent if each.url.endswith("/events")]
    assert events and all(each.headers["authorization"] == f"Bearer {ours}" for each in events)
    assert ours not in page.content() and "$HOROCYCLE_KEY" in str(
        page.locator("#twins button").first.get_attribute("title")
    )
    with page.expect_popup() as opened:
        page.get_by_role("link", name="session", exact=True).click()
    opened.value.get_by_text(NAME).wait_for()

    page.reload()
    page.get_by_role("heading", name=NAME).wait_for()
    wait_for(page, "globalThis.horocycle?.state === 'live'")

    other = context.new_page()  # another tab has no key
    other.goto(f"{locked.url}/sessions/mine/live")
    unlock(other, theirs)
    other.get_by_role("heading", name="Unknown session").wait_for()
    assert NAME not in other.content()
    other.goto(locked.url)
    other.get_by_text("No sessions yet").wait_for()
    assert NAME not in other.content()


def test_a_key_that_is_revoked_locks_the_page_again(context: BrowserContext, locked: Running, ours: str) -> None:
    page = context.new_page()
    page.goto(locked.url)
    unlock(page, ours)
    page.get_by_text("No sessions yet").or_(page.locator(".card")).first.wait_for()
    assert command("keys", "revoke", ours.split("_")[1], "--data", str(locked.data)).returncode == 0
    page.get_by_text("That key was refused").wait_for()  # the list is asked for every two seconds
    assert page.locator("main").is_hidden()
