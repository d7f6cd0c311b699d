"""One Chromium for all tests of the page. Without a Chromium they are left out, loudly; in CI they fail."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.page.browser import PATIENCE, complaints, program

LEFT_OUT = "THE TESTS OF THE PAGE WERE LEFT OUT: there is no chromium on PATH (Debian: apt-get install chromium)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if program() is None and not os.environ.get("CI"):
        for item in items:
            if "browser" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.skip(reason=LEFT_OUT))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if program() is None:
        terminalreporter.section("page", red=True, bold=True)
        terminalreporter.line(LEFT_OUT, red=True, bold=True)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    found = program()
    assert found is not None, LEFT_OUT
    with sync_playwright() as playwright:
        # a container has no user namespaces for the sandbox; only pages of ours are opened
        running = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Without animation, which only costs a loaded machine"""
    made = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    made.set_default_timeout(PATIENCE)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page that nobody may complain about"""
    made = context.new_page()
    said = complaints(made)
    yield made
    assert said == []
