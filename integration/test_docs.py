"""The documentation site: built strictly, complete, and without anything from another host."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest

from integration.ui.browser import open_browser, why_none
from kinesis_sdk import __version__
from tests import HANG
from tests.readme import DOCS, ROOT, blocks

BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site in a folder of its own; a warning of MkDocs or of a plugin fails the build."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [BIN / "mkdocs", "build", "--strict", "--site-dir", folder],
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


class Page(HTMLParser):
    """Addresses in a page: what it loads by itself, what it links to, and its own anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        for name in ("id", "name"):
            self.anchors.add(values.get(name) or "")
        if tag in {"script", "img", "iframe", "source", "video"} and values.get("src"):
            self.loads.append(values["src"] or "")
        elif tag == "link" and values.get("href") and values.get("rel") not in {"canonical", "prev", "next"}:
            self.loads.append(values["href"] or "")
        elif tag == "a" and values.get("href"):
            self.links.append(values["href"] or "")


def pages(site: Path) -> Iterator[tuple[Path, Page]]:
    for path in sorted(site.rglob("*.html")):
        if path.name != "404.html":  # its addresses are relative to wherever a reader got lost
            yield path, Page(path.read_text(encoding="utf-8"))


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    seen = 0
    for path, page in pages(site):
        for address in page.loads:
            seen += 1
            assert not urlsplit(address).scheme.startswith("http"), f"{path.name} loads {address}"
            assert not address.startswith("//"), f"{path.name} loads {address}"
            if not address.startswith("data:"):
                assert (path.parent / unquote(urlsplit(address).path)).exists(), (
                    f"{path.name} loads {address}"
                )
    assert seen > 100
    for style in site.rglob("*.css"):
        assert not re.search(r"url\((['\"]?)(https?:)?//|@import", style.read_text(encoding="utf-8")), style


def test_every_link_inside_the_site_leads_somewhere(site: Path) -> None:
    found = dict(pages(site))
    seen = 0
    for path, page in found.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or link.startswith("//"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{path.relative_to(site)} links to {link}"
            if parts.fragment and target in found:
                assert unquote(parts.fragment) in found[target].anchors, f"{path.relative_to(site)}: {link}"
            seen += 1
    assert seen > 500


def test_a_page_has_the_version_in_its_header_and_its_neighbors_at_its_foot(site: Path) -> None:
    html = (site / "lag.html").read_text(encoding="utf-8")
    header, _, rest = html.partition("</header>")
    assert f"kinesis_sdk {__version__}" in header.partition("<header")[2]
    for direction in ("prev", "next"):
        assert f'md-footer__link--{direction}"' in rest


def test_every_page_is_there_as_markdown_and_in_the_list(site: Path) -> None:
    listed = re.findall(r"^- \[.+?\]\((.+?)\)", (site / "llms.txt").read_text(encoding="utf-8"), re.MULTILINE)
    written = {str(path.relative_to(site).with_suffix(".md")) for path, _ in pages(site)}
    assert set(listed) == written
    assert len(listed) == len(set(listed))
    assert {page.name for page in DOCS.glob("*.md")} <= written
    for name in listed:
        text = (site / name).read_text(encoding="utf-8")
        assert text.startswith("# "), name
        assert "<div" not in text, name
        for link in re.findall(r"\]\(([^)#:\s]+\.(?:md|html))[#)]", text):
            assert ((site / name).parent / link).exists(), f"{name} links to {link}"


def test_code_in_the_markdown_is_that_of_the_page(site: Path) -> None:
    """With its language, and with both blank lines between functions."""
    compared = 0
    for page in sorted(DOCS.glob("*.md")):
        copied = [(block.language, block.text) for block in blocks(page=site / page.name)]
        for block in blocks(page=page):
            if block.language in {"python", "sh", "toml", "yaml", "json", "properties", "sql"}:
                assert (block.language, block.text) in copied, f"{page.name}:{block.line}"
                compared += 1
    assert compared > 70


def test_every_summary_is_the_first_sentence_of_its_page(site: Path) -> None:
    listed = dict(
        re.findall(
            r"^- \[.+?\]\((.+?)\): (.+)$", (site / "llms.txt").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    for page in DOCS.glob("*.md"):
        if page.name == "index.md":
            continue  # laid out in columns
        first = re.search(
            r"\n\n(.*?[.?!])(?:\s|$)", page.read_text(encoding="utf-8").replace("**", ""), re.DOTALL
        )
        assert first, page.name
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(first[1].split()))
        assert listed[page.name].startswith(words), f"{page.name}: {listed[page.name]}"


def test_the_search_index_holds_every_page(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = {entry["location"].split("#")[0] for entry in index["docs"]}
    assert {str(path.relative_to(site)) for path, _ in pages(site)} - places <= {"index.html"}
    assert list((site / "assets" / "javascripts" / "workers").glob("search.*.js"))


MEANT = {
    "aggregation": "producer",
    "asyncio": "services",
    "avro": "serialization",
    "backfill": "run",
    "backpressure": "producer",
    "batch size": "consumer",
    "checkpoint": "consumer",
    "cost": "costs",
    "dead letter": "failures",
    "deploy": "deploy",
    "dlq": "failures",
    "doctor": "doctor",
    "drain": "live-changes",
    "duplicate": "exactly-once",
    "dynamodb streams": "dynamodb-streams",
    "enhanced fan-out": "consumer",
    "exactly once": "exactly-once",
    "fastapi": "services",
    "glue": "serialization",
    "grafana": "monitoring",
    "hot shard": "runbooks",
    "iam": "permissions",
    "idempotent": "exactly-once",
    "java": "migration",
    "kcl": "migration",
    "kpl": "migration",
    "kubernetes": "kubernetes",
    "lag": "lag",
    "lambda": "lambda",
    "lease table": "lease-table",
    "localstack": "testing",
    "memory": "sizing",
    "migrate": "migration",
    "moto": "testing",
    "multilang": "multilang",
    "order": "order",
    "permissions": "permissions",
    "poison": "failures",
    "postgres": "lease-stores",
    "prometheus": "monitoring",
    "proxy": "endpoints",
    "reshard": "reshard",
    "retry": "failures",
    "rewind": "rewind",
    "sigterm": "run",
    "sink": "exactly-once",
    "spark": "spark-guide",
    "split": "reshard",
    "throttled": "runbooks",
}
"""What people type, and the page that they look for."""


def test_a_search_finds_the_page_that_is_meant(site: Path) -> None:
    """Pages are opened from the disk in Chromium; the page that is meant is among the first three results."""
    reason = why_none()
    if reason is not None:
        pytest.skip(reason)
    # Playwright's event loop ends with its thread; other tests of this process have loops of their own.
    with ThreadPoolExecutor(1) as thread:
        for opened, words in (("lag.html", sorted(MEANT)), ("reference/settings.html", ["kubernetes"])):
            found, problems = thread.submit(search, site / opened, words).result()
            assert problems == []
            assert {word: pages for word, pages in found.items() if MEANT[word] not in pages} == {}


def search(opened: Path, words: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Type words into the search of a page; return the first three pages for each, and errors and requests that leave the disk."""
    problems: list[str] = []
    found: dict[str, list[str]] = {}
    with open_browser() as browser:
        page = browser.new_page()
        page.set_default_timeout(HANG * 1000)
        watch(page, problems)
        for word in words:
            # Results of the word before would be there already.
            page.goto(f"{opened.as_uri()}?q={quote(word)}")
            results = page.locator(".md-search-result__item > .md-search-result__link:first-child")
            results.first.wait_for()
            links = [result.get_attribute("href") for result in results.all()]
            found[word] = list(dict.fromkeys(Path(urlsplit(link).path).stem for link in links))[:3]
    return found, problems


def test_the_recorded_session_plays_from_the_disk(site: Path) -> None:
    reason = why_none()
    if reason is not None:
        pytest.skip(reason)
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(play, site / "session.html").result() == []


def play(opened: Path) -> list[str]:
    """Play the recording until its first command is typed; return errors and requests that leave the disk."""
    problems: list[str] = []
    with open_browser() as browser:
        page = browser.new_page()
        page.set_default_timeout(HANG * 1000)
        watch(page, problems)
        page.goto(opened.as_uri())
        page.locator("#session .ap-overlay-start").click()
        page.get_by_text("$ kinesis-sdk stream create").first.wait_for()
    return problems


def watch(page: Any, problems: list[str]) -> None:
    """Note errors of a page, and its requests that leave the disk."""
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "request",
        lambda request: request.url.startswith(("file:", "data:")) or problems.append(request.url),
    )
