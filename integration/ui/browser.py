"""A headless browser, and a folder for pictures."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
PICTURES = Path(os.environ.get("KINESIS_SDK_PICTURES") or Path(__file__).parents[2] / ".cache" / "pictures")
"""Where the tests keep a picture of each view. `.cache` is ignored by git; CI may keep another folder."""


def why_none() -> str | None:
    """Return why no browser is available; None if one is."""
    try:
        import playwright  # noqa: F401
    except ModuleNotFoundError:
        return "Playwright is not installed (pip install playwright)"
    if _executable() is None:
        return f"no browser is in the PATH: {', '.join(NAMES)} (Debian: apt-get install chromium)"
    return None


def _executable() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def open_browser() -> Iterator[Any]:
    """Start a browser, and close it at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Chromium's sandbox needs privileges that containers lack. The pages are our own.
        browser = playwright.chromium.launch(executable_path=_executable(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()
