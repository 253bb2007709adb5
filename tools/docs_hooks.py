"""Hooks of the documentation site (`mkdocs.yml`): files of the repository, Markdown of every page, ``llms.txt``.

* Pages of the repository's root (DESIGN.md, CHANGELOG.md, CONTRIBUTING.md) become pages below ``project/``.
* Files outside ``docs/`` to which pages link, such as an alert rule or an example, are copied into the site.
* Every page is also written as Markdown next to its HTML, and ``llms.txt`` lists them all.
* The recorded session becomes a script, so that it plays in a page that is opened from a disk, which cannot fetch files.
"""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from markdownify import MarkdownConverter
from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

from kinesis_sdk import __version__
from tools import docs_reference

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.nav import Navigation
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PROJECT_PAGES = {
    "examples/README.md": "examples.md",
    "DESIGN.md": "project/design.md",
    **{
        path.relative_to(ROOT).as_posix(): f"project/design-{path.parent.name}.md"
        for path in (*sorted((ROOT / "kinesis_sdk").glob("*/DESIGN.md")), ROOT / "integration" / "DESIGN.md")
    },
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "RELEASING.md": "project/releasing.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
}
"""Path in the repository, and path in the site, of each page outside ``docs/``."""

DOCUMENTED = {
    "README.md": "index.md",
    "kinesis_sdk/producer/config.py": "reference/settings.md",
    "kinesis_sdk/consumer/config.py": "reference/settings.md",
    "kinesis_sdk/common/errors.py": "reference/errors.md",
    "tools/docs_differences.py": "reference/differences.md",
}
"""Page of the site to which a link to a file of the repository leads."""

SEARCHED = {
    "consumer.md": "checkpoint, batch size, fan-out, stop",
    "deploy.md": "autoscaling",
    "endpoints.md": "proxy, firewall",
    "exactly-once.md": "sink, duplicate, idempotent",
    "failures.md": "dlq, poison, retry, skip",
    "lease-table.md": "lease table",
    "migration.md": "kpl, kcl, java",
    "multilang.md": "multilang, java",
    "order.md": "ordering",
    "producer.md": "aggregation, backpressure, kpl, buffer",
    "reshard.md": "split, merge",
    "rewind.md": "rewind, replay, reprocess",
    "run.md": "sigterm, shutdown, backfill",
    "services.md": "asyncio, fastapi",
    "sizing.md": "memory",
    "testing.md": "moto, localstack, mock",
}
"""Search words that mean this page, although other pages contain them more often."""

_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)

_pages: list[tuple[str, str, str]] = []
"""Title, address of the Markdown and first sentence of each page, in the order of the navigation."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository's root, and the files that pages link to."""
    _pages.clear()
    for source, target in PROJECT_PAGES.items():
        if files.get_file_from_path(target) is None and (ROOT / source).exists():
            files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    for path, content in docs_reference.pages():
        files.append(File.generated(config, path, content=content))
    recording = (ROOT / "docs" / "session.cast").read_text(encoding="utf-8")
    files.append(
        File.generated(config, "player/recording.js", content=f"const RECORDING = {json.dumps(recording)};\n")
    )
    linked: set[str] = set()
    for file in list(files.documentation_pages()):
        for _, path, _ in _links(file.content_string):
            linked.add(_resolve(_source_of(file.src_uri), path))
    for path in sorted(linked):
        outside = not path.startswith(("docs/", "../")) and path not in (*PROJECT_PAGES, *DOCUMENTED)
        if outside and (ROOT / path).is_file() and files.get_file_from_path(f"files/{path}") is None:
            files.append(File.generated(config, f"files/{path}", abs_src_path=str(ROOT / path)))
    return files


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show the version in the header of each page, and the license at its foot."""
    config.site_name = f"{config.site_name} {__version__}"
    config.copyright = "Apache-2.0"
    return config


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Adapt the links of the repository to the site, and rank guides first in searches."""
    del config
    page.meta.setdefault("search", {"boost": _boost(page.file.src_uri)})
    if page.file.src_uri in SEARCHED:
        page.meta.setdefault("tags", SEARCHED[page.file.src_uri].split(", "))
    source = _source_of(page.file.src_uri)

    def rewrite(match: re.Match[str]) -> str:
        path, anchor = match[2], match[3] or ""
        if re.match(r"[a-z]+:", path):
            return match[0]
        target = _in_site(_resolve(source, path))
        if files.get_file_from_path(target) is None:
            return match[0]  # MkDocs reports it.
        link = get_relative_url(target, page.file.src_uri)
        return f"{match[1]}{link}{anchor}{match[4]}"

    return "".join(part if fenced else _LINK.sub(rewrite, part) for fenced, part in _split(markdown))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Write the page, with generated and included parts, as Markdown next to its HTML."""
    html = page.content or ""
    # Links between pages lead to HTML, links between the Markdown files to Markdown.
    html = re.sub(r'<a class="headerlink".*?</a>', "", html)
    html = re.sub(r'(href="(?![a-z]+:)[^"#]*)\.html(?=["#])', r"\1.md", html)
    text = MarkdownConverter(
        heading_style="ATX", bullets="-", escape_underscores=False, code_language_callback=_language
    ).convert(html)
    target = Path(config.site_dir, page.file.dest_uri).with_suffix(".md")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(_without_gaps(text).strip() + "\n", encoding="utf-8")
    address = str(PurePosixPath(page.file.dest_uri).with_suffix(".md"))
    _pages.append((str(page.title), address, _first_sentence(text)))
    return output


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Remember the order of the navigation for ``llms.txt``."""
    del config, files
    _order.clear()
    _order.extend(str(PurePosixPath(page.file.dest_uri).with_suffix(".md")) for page in nav.pages)
    return nav


def _boost(src_uri: str) -> float:
    """Return the weight of a page in searches: reference and project pages contain every word, but explain few."""
    return 0.3 if src_uri.startswith(("reference/", "project/")) else 2.0


_order: list[str] = []


def on_post_build(config: MkDocsConfig) -> None:
    """Write ``llms.txt``: every page with its title and its first sentence."""
    pages = sorted(_pages, key=lambda page: _order.index(page[1]) if page[1] in _order else len(_order))
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", "", "## Pages", ""]
    lines += [f"- [{title}]({address}){sentence and f': {sentence}'}" for title, address, sentence in pages]
    Path(config.site_dir, "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _source_of(src_uri: str) -> str:
    """Return the path in the repository of a page of the site."""
    for source, target in PROJECT_PAGES.items():
        if target == src_uri and not (ROOT / "docs" / target).exists():
            return source
    return f"docs/{src_uri}"


def _in_site(path: str) -> str:
    """Return the path in the site of a path in the repository."""
    if path in PROJECT_PAGES or path in DOCUMENTED:
        return PROJECT_PAGES.get(path) or DOCUMENTED[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}"


def _resolve(source: str, path: str) -> str:
    parts: list[str] = list(PurePosixPath(source).parent.parts)
    for part in PurePosixPath(path).parts:
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _links(markdown: str) -> list[tuple[str, str, str]]:
    return [
        (match[1], match[2], match[3] or "")
        for fenced, part in _split(markdown)
        if not fenced
        for match in _LINK.finditer(part)
        if not re.match(r"[a-z]+:", match[2])
    ]


def _split(markdown: str) -> list[tuple[bool, str]]:
    """Split a page into code blocks (True) and the text between them."""
    parts: list[tuple[bool, str]] = []
    end = 0
    for match in _FENCE.finditer(markdown):
        parts += [(False, markdown[end : match.start()]), (True, match[0])]
        end = match.end()
    return [*parts, (False, markdown[end:])]


def _without_gaps(markdown: str) -> str:
    """Return the text with at most one blank line in a row, except in code, where two blank lines separate functions."""
    return "".join(part if fenced else re.sub(r"\n{3,}", "\n\n", part) for fenced, part in _split(markdown))


def _first_sentence(text: str) -> str:
    """Return the first whole sentence of a page; empty if it has only code, tables and lists of links."""
    for paragraph in _FENCE.sub("", text).split("\n\n"):
        plain = " ".join(paragraph.split()).replace("**", "")
        if not plain or plain.startswith(("#", "|", "-", "!", "<", ">", "*", "Contents:")):
            continue
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", plain)
        sentence = re.split(r"(?<=[.?!])\s", plain, maxsplit=1)[0]
        if sentence.endswith("."):
            return sentence
    return ""


def _language(element: Any) -> str:
    """Return the language of a code block, from a class such as ``language-python`` on it or around it."""
    for around in (element, *element.parents):
        for name in around.get("class") or ():
            if name.startswith("language-"):
                return str(name).removeprefix("language-")
        if "highlight" in (around.get("class") or ()):
            break
    return ""
