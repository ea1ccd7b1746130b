"""A real browser: the system's Chromium, driven by Playwright.

Without one these tests are skipped with the reason; under UNMASK_REQUIRE_BROWSER=1, as in CI, they fail instead.
"""

import os
import shutil
from collections.abc import Iterator

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator:
    """The browser, started once for each test process."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        message = "there is no Chromium on this machine; install it, e.g. with `apt-get install chromium`"
        if os.environ.get("UNMASK_REQUIRE_BROWSER") == "1":
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def tab(chromium) -> Iterator:
    """A new page that fails its test on a console error, an uncaught error or a request that leaves this machine."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda request: None if _ours(request.url) else wrong.append(f"request to {request.url}"))
    yield opened
    context.close()
    assert not wrong


def _ours(url: str) -> bool:
    return url.startswith(("file:", "data:", "blob:", "about:", "http://127.0.0.1:"))
