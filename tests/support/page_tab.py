"""Headless Chromium in front of the scripted page: tabs, and all that they complain about."""

import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.page import ScriptedPage
from tests.support.screenshots import BROWSERS, FLAGS

CHROMIUM = next((found for name in BROWSERS if (found := shutil.which(name))), None)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless Chromium of this machine; one per module, since Playwright's loop would be in other tests' way."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: make setup")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Tab:
    """One browser tab and all it complained about."""

    def __init__(self, page: Any, origin: str) -> None:
        self.page, self.complaints, self.foreign = page, list[str](), list[str]()
        page.wait_for_function = self._refuse_eval
        page.on("console", lambda line: line.type in ("error", "warning") and self.complaints.append(line.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (self.complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on(
            "request",
            lambda request: request.url.startswith((origin, "data:", "blob:")) or self.foreign.append(request.url),
        )

    def wait(self, condition: str, seconds: float = 30.0) -> None:
        """Until this JavaScript is true; an element that is not there yet is false.

        Playwright's own way needs eval, which the page's policy forbids.
        """
        deadline = time.monotonic() + seconds
        caught = "catch (e) { if (e instanceof TypeError) return false; throw e }"
        asked = f"(() => {{ try {{ return {condition} }} {caught} }})()"
        while not self.page.evaluate(asked):
            assert time.monotonic() < deadline, f"{condition} did not come true within {seconds:g} s"
            self.page.wait_for_timeout(30)

    @staticmethod
    def _refuse_eval(*asked: Any, **options: Any) -> None:
        raise AssertionError(
            "Playwright's polling needs eval, which the policy forbids, unless it comes true at once: Tab.wait"
        )

    def assert_clean(self) -> None:
        """No complaint of the browser, a violated policy among them, and no request to anybody else."""
        assert (self.complaints, self.foreign) == ([], []), (self.complaints, self.foreign)


@pytest.fixture
def open_tab(chromium: Any, scripted_page: ScriptedPage) -> Iterator[Callable[..., Tab]]:
    """`open_tab(path="/", width=1440, **context)` opens the scripted page and waits until it is live."""
    contexts = []

    def open_one(path: str = "/", *, width: int = 1440, height: int = 900, live: bool = True, **options: Any) -> Tab:
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        context.set_default_timeout(30_000)
        contexts.append(context)
        tab = Tab(context.new_page(), scripted_page.url)
        tab.page.goto(scripted_page.url + path)
        if live:
            tab.page.wait_for_selector('html[data-live="live"]', state="attached")
        return tab

    yield open_one
    for context in contexts:
        context.close()
