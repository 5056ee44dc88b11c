"""Opens a page from disk in Chromium; where there is none, tests are skipped, but not in CI."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
# A container has no user namespaces for Chromium's sandbox, and nobody has clicked before the page may play.
ARGUMENTS = ["--no-sandbox", "--autoplay-policy=no-user-gesture-required"]


def find_chromium() -> str:
    """Path of a browser; skips the test where there is none, fails it in CI."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    missing = []
    if found is None:
        missing.append(f"no browser ({', '.join(NAMES)}) on the path: apt-get install chromium")
    if find_spec("playwright") is None:
        missing.append("playwright is not installed: pip install -e '.[test]'")
    if found is None or missing:
        message = "; ".join(missing)
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return found


class Viewer:
    """A page that is open, and what went wrong on it."""

    def __init__(self, page: Any) -> None:
        self.page, self.faults = page, []
        page.on("console", lambda message: self._told(message.type, message.text))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", lambda request: self._requested(request.url))

    def _told(self, kind: str, text: str) -> None:
        # Reading pixels is what the tests do, the page does not.
        if kind != "log" and "willReadFrequently" not in text:
            self.faults.append(text)

    def _requested(self, url: str) -> None:
        if not url.startswith(("file:", "data:", "blob:")):
            self.faults.append(f"asked the network for {url}")

    def open(self, path: Path) -> Viewer:
        self.page.goto(path.as_uri())
        self.page.wait_for_function("window.viewerState && viewerState().ready && viewerState().sound.duration_s > 0")
        return self

    def state(self) -> dict[str, Any]:
        self.page.wait_for_function("viewerState().ready")
        found: dict[str, Any] = self.page.evaluate("viewerState()")
        return found

    def seek(self, frame: int) -> None:
        self.page.evaluate("frame => viewerTest.seek(frame)", frame)

    def place(self, head: int, frame: int, lag_ms: float) -> tuple[float, float]:
        point = self.page.evaluate("a => viewerTest.place(...a)", [head, frame, lag_ms])
        return point["x"], point["y"]

    def pixel(self, head: int, frame: int, lag_ms: float) -> list[int]:
        found: list[int] = self.page.evaluate("a => viewerTest.pixel(...a)", [head, frame, lag_ms])
        return found

    def pixels(self, places: list[tuple[int, int, int]]) -> list[list[int]]:
        found: list[list[int]] = self.page.evaluate("all => all.map(a => viewerTest.pixel(...a))", places)
        return found

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)


@contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    executable = find_chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        try:
            yield launched
        finally:
            launched.close()
