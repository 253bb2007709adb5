"""Code of the pages that comes from files: a block's title names the file, and ``make docs`` writes the block.

A fenced block with a path as its title, for example::

    ```python title="examples/dead_letter.py"
    ```python title="examples/dead_letter.py:imports,dead_letter,main"
    ```yaml title="examples/kubernetes/worker.yaml:probes"

holds the text of that file, or of parts of it: definitions of a Python file by name, ``imports`` for its import statements, or
regions of any file between lines ``# region NAME`` and ``# endregion`` (``//`` in Java). The page contains the text itself, so
GitHub and the Markdown copies show it too. tests/test_readme.py fails if it differs from the file.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMPORTS = "imports"

_BLOCK = re.compile(
    r'^(?P<head>(?P<indent> *)(?P<fence>```+)[^\n`]*\btitle="(?P<title>[^"\n]*/[^"\n]*)"[^\n]*\n)'
    r".*?^(?P<tail>(?P=indent)(?P=fence)) *$",
    re.MULTILINE | re.DOTALL,
)
_REGION = re.compile(r"^ *(?:#|//) (?:region\b.*|endregion)\n", re.MULTILINE)


def pages() -> list[Path]:
    """Return the pages whose blocks may come from files."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def with_files(markdown: str) -> str:
    """Return the text of a page with the current code in every block that names a file.

    Raises ValueError if a file, or a part of it, does not exist; the message names both.
    """

    def fill(match: re.Match[str]) -> str:
        text = text_of(match["title"])
        return match["head"] + textwrap.indent(text, match["indent"]) + match["tail"]

    return _BLOCK.sub(fill, markdown)


def text_of(title: str) -> str:
    """Return the text that a title stands for.

    `title` is a path from the repository's root, then optionally a colon and names of parts, separated by commas. Raises
    ValueError if the file or a part does not exist.
    """
    path, _, names = title.partition(":")
    if not (ROOT / path).is_file():
        raise ValueError(f"the title of a code block names {path!r}, which is no file of the repository")
    source = (ROOT / path).read_text(encoding="utf-8")
    if not names:
        return _REGION.sub("", source)
    found = _regions(source) | (_definitions(source) if path.endswith(".py") else {})
    text = ""
    before = False
    for name in names.split(","):
        if name not in found:
            raise ValueError(f"the title of a code block names {name!r}, but {path} has {sorted(found)}")
        part, spacious = found[name]
        text += ("" if not text else "\n\n" if spacious or before else "\n") + part
        before = spacious
    return text


def _regions(source: str) -> dict[str, tuple[str, bool]]:
    """Return the regions of a file: text, and whether two empty lines separate it from other regions."""
    found = re.findall(
        r"^ *(?:#|//) region (\S+).*\n((?:.*\n)*?) *(?:#|//) endregion$", source.rstrip() + "\n", re.MULTILINE
    )
    return {name: (_at_top_level(text), False) for name, text in found}


def _at_top_level(text: str) -> str:
    """Return the text without its indentation, with two empty lines between methods, as the formatter requires."""
    dedented = textwrap.dedent(text).rstrip() + "\n"
    if not text.startswith(" "):
        return dedented
    return re.sub(r"(?<=\n)\n(?=(?:@|def |async def |class ))", "\n\n", dedented)


def _definitions(source: str) -> dict[str, tuple[str, bool]]:
    """Return the top-level definitions of a Python file, with the comments directly above each."""
    lines = source.splitlines(keepends=True)
    found: dict[str, tuple[str, bool]] = {}
    imports = ""
    for node in ast.parse(source).body:
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))]) - 1
        # "# %%" begins a cell of a notebook.
        while first and lines[first - 1].startswith("#") and not lines[first - 1].startswith("# %%"):
            first -= 1
        text = "".join(lines[first : node.end_lineno])
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            if not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
                gap = "\n" if imports and not lines[first - 1].strip() else ""
                imports += gap + text
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found[node.name] = (text, True)
        else:
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            found.update({target.id: (text, False) for target in targets if isinstance(target, ast.Name)})
    return found | ({IMPORTS: (imports, False)} if imports else {})


def main() -> int:
    """Write the blocks of all pages."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        current = with_files(text)
        if current != text:
            page.write_text(current, encoding="utf-8")
            print(f"wrote the code of {page.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
