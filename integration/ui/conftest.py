from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from integration.ui.browser import PICTURES, open_browser, why_none
from kinesis_sdk.cli.web.server import ConsoleServer
from tests import HANG
from tests.cli.web.generated import GeneratedBackend, GeneratedFleet


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    reason = why_none()
    if reason is not None:
        pytest.skip(reason)
    with open_browser() as opened:
        yield opened


class Problems(list[str]):
    """Errors of scripts and violations of the content security policy."""


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open pages; fail on script errors and on requests that leave this machine."""
    with ExitStack() as stack:
        problems = Problems()

        def make(url: str, *, scheme: str = "light", width: int = 1440, **options: Any) -> Any:
            context = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=scheme, **options
            )
            stack.callback(context.close)
            context.set_default_timeout(HANG * 1000)
            page = context.new_page()
            page.on("pageerror", lambda error: problems.append(f"error: {error}"))
            page.on(
                "console",
                lambda message: "Content Security Policy" in message.text and problems.append(message.text),
            )
            page.on(
                "request",
                lambda request: (
                    request.url.startswith(url.split("?", maxsplit=1)[0].split("#", maxsplit=1)[0])
                    or problems.append(request.url)
                ),
            )
            page.goto(url)
            return page

        yield make
        assert problems == []


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Serve a backend; return its address."""
    with ExitStack() as stack:

        def start(backend: GeneratedBackend, **settings: Any) -> str:
            server = ConsoleServer(backend, planner=backend, port=0, **settings)
            server.start()
            stack.callback(server.stop)
            return server.url

        yield start


@pytest.fixture
def open_fleet(open_page: Callable[..., Any], serve: Callable[..., str]) -> Callable[..., Any]:
    """Open a page of a console that watches a generated fleet of a size; return the page and its backend."""

    def start(
        shards: int = 20,
        owners: int = 3,
        *,
        at: str = "#/fleet/billing",
        interval: float | None = 0.3,
        scheme: str = "light",
        **settings: Any,
    ) -> tuple[Any, GeneratedBackend]:
        backend = GeneratedBackend({"billing": GeneratedFleet(shards, owners)}, interval=interval)
        return open_page(serve(backend, **settings) + at, scheme=scheme), backend

    return start


@pytest.fixture
def keep_picture() -> Callable[[Any, str], None]:
    """Save a picture of a page for human eyes."""

    def keep(page: Any, name: str) -> None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=PICTURES / f"{name}.png", full_page=True)

    return keep
