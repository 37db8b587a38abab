"""Pages in Chromium, from the disk and without a network; all that goes wrong there is collected.

with launched() as browser, opened(browser, path) as tab:
    tab.page.click("summary")
    assert not tab.trouble
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from playwright.sync_api import Browser, ConsoleMessage, Page, Route, sync_playwright

VARIABLE: Final = "FAIRMFU_CHROMIUM"
"""Names the browser where it is not called as usual."""
NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "/usr/bin/chromium")
FLAGS: Final = (
    "--no-sandbox",  # root in a container has none
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
ELSEWHERE: Final = re.compile(r"^(?!file:|data:|blob:|about:)")
"""Addresses that are not on this machine."""
PATIENCE_MS: Final = 30_000


def chromium() -> str | None:
    """Path of the browser, None where there is none.

    Raises FileNotFoundError where the variable names one that is not there.
    """
    if given := os.environ.get(VARIABLE):
        if shutil.which(given) is None:
            raise FileNotFoundError(f"{VARIABLE} names {given}, which is no program")
        return given
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def launched() -> Iterator[Browser]:
    """A browser, closed at the end."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Tab:
    """One open page. trouble: errors, warnings, breaches of its policy, calls for the network."""

    page: Page
    trouble: list[str] = field(default_factory=list)

    def ask(self, script: str, argument: object = None) -> Any:
        """What a JavaScript expression or function gives."""
        return self.page.evaluate(script, argument)

    def until(self, script: str, argument: object = None) -> None:
        """Wait until it holds; a playwright Error says that it never did."""
        self.page.wait_for_function(script, arg=argument)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.trouble.append(f"{message.type}: {message.text}")

    def _refused(self, route: Route) -> None:
        self.trouble.append(f"network: {route.request.url}")
        route.abort()


@contextmanager
def opened(  # noqa: PLR0913 - how a reader may have it
    browser: Browser,
    path: Path,
    *,
    fragment: str = "",
    width: int = 1280,
    height: int = 800,
    scheme: Literal["light", "dark"] = "light",
    script: bool = True,
    script_before: str = "",
) -> Iterator[Tab]:
    """A page of the disk, loaded, in a window of this size [px] and its own profile.

    fragment: behind the '#' of its address; script: whether the reader lets scripts run;
    script_before: one that runs before any of the page's own.
    """
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        java_script_enabled=script,
        reduced_motion="reduce",
    )
    try:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        tab = Tab(page)
        context.route(ELSEWHERE, tab._refused)
        page.on("console", tab._said)
        page.on("pageerror", lambda error: tab.trouble.append(f"exception: {error}"))
        page.on("crash", lambda _: tab.trouble.append("the page crashed"))
        if script_before:
            page.add_init_script(script_before)
        page.goto(path.absolute().as_uri() + (fragment and f"#{fragment}"), wait_until="load")
        yield tab
    finally:
        context.close()


@contextmanager
def untroubled(browser: Browser, path: Path, **how: Any) -> Iterator[Tab]:
    """The same as `opened`; any trouble fails the test at the end."""
    with opened(browser, path, **how) as tab:
        yield tab
        assert tab.trouble == []


Reading = Callable[..., AbstractContextManager[Tab]]
"""`untroubled` in a browser."""
