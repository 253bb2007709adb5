"""Checks the prose of the project: comments, docstrings, log and error messages, and the documents.

Each rule is a pattern for words that a native writer of technical English would not use, or for old names of things that have
a standard name. A finding is printed as ``file:line: rule: text -> suggestion``.

Rules 1 to 9 must have no findings, and rule 10 none in the consumer. The rest are reading lists (``--reading``): most of
their findings should be rewritten, but some are right, so they do not change the exit code. ``--commits`` checks the
subjects of commits (rule 18) instead.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

ROOT = Path(__file__).parents[1]
SOURCES = ("kinesis_sdk", "pyspark_kinesis_sdk", "README.md", "DESIGN.md", "CONTRIBUTING.md", "docs")

Where = Literal["prose", "opening", "lines", "everywhere"]


@dataclass(frozen=True)
class Rule:
    """A pattern that prose must not contain.

    Attributes:
        number: Number on the command line and in findings.
        pattern: Regular expression. Runs of white space in the text count as one space.
        instead: What to write instead.
        where: ``prose``: any text except code between backticks. ``opening``: the first words of a docstring. ``lines``:
            single lines of a docstring. ``everywhere``: also code between backticks, identifiers and string literals of
            one word.
        folder: Only for files below this folder; empty for all files.
        outside: Not for files below this folder.
        required: Whether findings fail the check; False for reading lists.
    """

    number: int
    pattern: str
    instead: str
    where: Where = "prose"
    folder: str = ""
    outside: str = ""
    required: bool = True


_WORDS = tuple(
    Rule(8, rf"(?i)(?<![a-z])({words})(?![a-z])", instead, "everywhere")
    for words, instead in (
        ("handovers?", "handoff"),
        (r"(hand|hands|handed|handing)[ _]over", "hand off (a lease), pass (an object)"),
        ("newcomers?", "new worker"),
        ("dut(y|ies)", "leader task"),
        ("bur(y|ies|ied)", "dead-letter"),
        ("outlets?", "failure hooks"),
        ("parcels?", "assignment"),
        ("givers?", "source"),
        ("takers?", "target"),
        ("verdicts?", "placement, result"),
        ("fates?", "delivery state"),
        (r"travel(s|led|ed)?[ _]alone", "not aggregated"),
        (r"short[ _]way", "fast path"),
        (r"spoken[ _]for", "held or incoming"),
        (r"(leave|leaves|left)[ _]lying", "unclaimed"),
        (r"(see|sees|seen|saw)[ _]off", "reclaim"),
        ("contestants?", "candidate"),
        (r"stand(s|ing)?[ _]still|stood[ _]still", "stalled (a shard), unchanged (a counter)"),
    )
)
_LOOK = r"(?i)\blook(s|ed|ing)?\b(?! ?-?up| (it|them|this|that) up| ahead| like)"

RULES = (
    Rule(1, r"\b[Cc]an not\b", "cannot"),
    Rule(
        2,
        r"(?i)\b(who|whom)(so)?ever\b|\b(some|any|no|every)body\b",
        "name the worker, thread, caller or user",
    ),
    Rule(3, r"(?i)(^|[.;:,(] ?)\b(who|those who|of those|for those|to those) ", "a noun"),
    Rule(
        4,
        r"(?i)(?<!there )\b(is|are|was|were) no "
        r"(?!longer|more|less|fewer|later|earlier|larger|smaller|greater|higher|lower|newer|older|better|worse|different|other)"
        r"[a-z]+",
        "is not a, has no",
    ),
    Rule(5, r"(?i)\bnot\b[^.;]{0,60}\bany ?more\b", "no longer"),
    Rule(
        6,
        r"(What|Who|Where|When|How|Which|Why)\b",
        "a verb (function) or a noun (class, property)",
        "opening",
    ),
    Rule(
        7,
        r"(?i)\b(anew|in vain|nevertheless|befell|hopeless|for dead)\b",
        "again, without success, anyway, fatal",
    ),
    *_WORDS,
    Rule(9, r"^\s+[a-z_]+: (Time|Jitter|Settings|Metrics|Streams?)\.$", "unit, purpose and default", "lines"),
    Rule(10, _LOOK, "scan (the lease table), check, inspect", folder="kinesis_sdk/consumer/"),
    Rule(10, _LOOK, "scan, check, probe, inspect, search", outside="kinesis_sdk/consumer/", required=False),
    Rule(11, r"(?i)\banswer(s|ed|ing)?\b", "response, respond", required=False),
    Rule(12, r"(?i)\brefus(e|es|ed|al|als|ing)\b", "reject", required=False),
    Rule(13, r"\b(Most|Least) [A-Za-z]+s?\b", "Maximum, Minimum", required=False),
    Rule(
        14,
        r"(?i)\b(goes?|going|went) on\b|\bbegins? (again|its)\b",
        "continue, restart, resume",
        required=False,
    ),
    Rule(
        15,
        r"(?i)\b(in place of|beside|of ours|by hand|so many)\b",
        "instead of, alongside, of this SDK, manually, this many",
        required=False,
    ),
    Rule(16, r"(?i)\b(he|his|she|price)\b", "it, its, cost", required=False),
    Rule(17, r"; [a-z ]{0,40}: ", "two sentences", required=False),
)


class Allowed(NamedTuple):
    """A finding that is right as it is. `text` is a part of the line, with white space as one space."""

    path: str
    rule: int
    text: str
    reason: str


ALLOWED: tuple[Allowed, ...] = (
    Allowed(
        "kinesis_sdk/testing/dynamodb/expressions.py",
        1,
        "The expression can not be empty",
        "DynamoDB's message",
    ),
    Allowed(
        "kinesis_sdk/testing/dynamodb/service.py", 1, "Can not use both expression and", "DynamoDB's message"
    ),
)

COMMIT_LENGTH = 72
COMMIT_COLON_WORDS = 10


class Text(NamedTuple):
    """A piece of prose, as in the source, with its line breaks.

    `kind` is ``docstring``, ``prose`` (comment, message, paragraph) or ``name`` (identifier, literal of one word).
    """

    kind: Literal["docstring", "prose", "name"]
    line: int
    text: str


class Finding(NamedTuple):
    """Text that a rule rejects. `text` is the match with a few words around it."""

    path: str
    line: int
    rule: Rule
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: rule {self.rule.number}: {self.text} -> {self.rule.instead}"


def texts_of_python(source: str) -> Iterator[Text]:
    """Yield the comments, docstrings, messages and names of a Python module."""
    yield from _comments(source)
    tree = ast.parse(source)
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    parts_of_f_strings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts_of_f_strings.update(id(part) for part in node.values)
            parts = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield Text("prose", node.lineno, "".join(parts).replace("\n", " "))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in docstrings:
                yield Text("docstring", node.lineno, node.value)
            elif id(node) not in parts_of_f_strings:
                words = node.value.split()
                yield Text("prose" if len(words) > 1 else "name", node.lineno, " ".join(words))


def _comments(source: str) -> Iterator[Text]:
    """Yield comments, with adjacent lines joined, and identifiers."""
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if token.type == tokenize.NAME:
            yield Text("name", line, token.string)
        elif token.type == tokenize.COMMENT:
            alone = not token.line[: token.start[1]].strip()
            text = re.sub(r"noqa(: *[A-Z0-9, ]+)?|type: ignore\S*|pragma: .*", " ", token.string.lstrip("#"))
            if not alone:
                yield Text("prose", line, text)
            elif block and line == last + 1:
                block.append(text)
                last = line
            else:
                if block:
                    yield Text("prose", first, "\n".join(block))
                block, first, last = [text], line, line
    if block:
        yield Text("prose", first, "\n".join(block))


def texts_of_markdown(source: str) -> Iterator[Text]:
    """Yield the paragraphs of a Markdown document, and the lines of its code blocks and tables."""
    first, paragraph, in_code = 1, list[str](), False
    for number, line in enumerate(source.splitlines(), start=1):
        fence = line.lstrip().startswith("```")
        in_code = in_code != fence
        single = in_code or fence or line.lstrip().startswith(("|", "#", "- ", "* "))
        if (single or not line.strip()) and paragraph:
            yield Text("prose", first, "\n".join(paragraph))
            paragraph = []
        if single and (in_code or fence or line.lstrip().startswith(("|", "#"))):
            yield Text("prose", number, line)
        elif line.strip():
            first = first if paragraph else number
            paragraph.append(line)
    if paragraph:
        yield Text("prose", first, "\n".join(paragraph))


_CODE = re.compile(r"(`+)([^`]+)\1")


def _flatten(text: str) -> tuple[str, list[int]]:
    """Return the text with each run of white space as one space, and the line offset of each character."""
    characters: list[str] = []
    lines: list[int] = []
    line = 0
    for character in text:
        if not character.isspace():
            characters.append(character)
            lines.append(line)
        elif characters and characters[-1] != " ":
            characters.append(" ")
            lines.append(line)
        line += character == "\n"
    return "".join(characters), lines


def check_text(text: Text, path: str, rules: Iterable[Rule]) -> Iterator[Finding]:
    """Yield the findings in one piece of prose."""
    whole, lines = _flatten(text.text)
    # Blank out code, but keep its length, so that offsets stay right.
    prose = _CODE.sub(lambda code: f"{code[1]}{'x' * len(code[2])}{code[1]}", whole)
    for rule in rules:
        if not path.startswith(rule.folder) or (rule.outside and path.startswith(rule.outside)):
            continue
        if rule.where == "lines":
            if text.kind == "docstring":
                for offset, line in enumerate(text.text.split("\n")):
                    if re.search(rule.pattern, line):
                        yield Finding(path, text.line + offset, rule, line.strip())
        elif rule.where == "opening":
            if text.kind == "docstring" and re.match(rule.pattern, whole):
                yield Finding(path, text.line, rule, whole[:60])
        elif text.kind == "name":
            if rule.where == "everywhere" and re.search(rule.pattern, _words_of(whole)):
                yield Finding(path, text.line, rule, whole)
        else:
            searched = whole if rule.where == "everywhere" else prose
            for match in re.finditer(rule.pattern, searched):
                yield Finding(
                    path, text.line + lines[match.start()], rule, _around(whole, match.start(), match.end())
                )


def _around(text: str, start: int, end: int, width: int = 30) -> str:
    """Return a part of a text with `width` characters around it."""
    first = 0 if start <= width else text.find(" ", start - width, start) + 1 or start
    last = len(text) if len(text) - end <= width else text.rfind(" ", end, end + width)
    return text[first : max(last, end)].strip()


def _words_of(name: str) -> str:
    """Return an identifier as separate words: ``InHandover`` and ``in_handover`` contain the word ``handover``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_|\W", " ", name)


def check_file(path: Path, rules: Sequence[Rule]) -> Iterator[Finding]:
    """Yield the findings in a Python module or a Markdown document."""
    source = path.read_text(encoding="utf-8")
    texts = texts_of_python(source) if path.suffix == ".py" else texts_of_markdown(source)
    shown = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.as_posix()
    for text in texts:
        yield from check_text(text, shown, rules)


def is_allowed(finding: Finding, allowed: Iterable[Allowed] = ALLOWED) -> bool:
    """Return whether a finding is in the list of exceptions."""
    return any(
        entry.path == finding.path and entry.rule == finding.rule.number and entry.text in finding.text
        for entry in allowed
    )


def files_of(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the Python modules and Markdown documents among these files and below these folders.

    Raises FileNotFoundError if a path does not exist.
    """
    for path in paths:
        if path.is_dir():
            yield from sorted(
                file
                for file in path.rglob("*")
                if file.suffix in {".py", ".md"} and "__pycache__" not in file.parts
            )
        elif path.exists():
            yield path
        else:
            raise FileNotFoundError(f"no such file or folder: {path}")


def check_subject(subject: str) -> str | None:
    """Return what is wrong with the subject of a commit, or None."""
    if len(subject) > COMMIT_LENGTH:
        return f"has {len(subject)} characters, at most {COMMIT_LENGTH} are accepted"
    before, colon, _ = subject.rpartition(":")
    if colon and len(before.split()) > COMMIT_COLON_WORDS:
        return f"has a colon after word {len(before.split())}: write the reason into the body"
    return None


def check_commits(commits: str) -> Iterator[str]:
    """Yield a line for each commit of a range whose subject is not accepted."""
    command = ["git", "log", "--no-merges", "--format=%h %s", "--end-of-options", commits]
    log = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for line in log.splitlines():
        commit, _, subject = line.partition(" ")
        problem = check_subject(subject)
        if problem:
            yield f"{commit}: rule 18: {subject!r} {problem}"


def _parser() -> argparse.ArgumentParser:
    rules = "\n".join(
        f"  {rule.number:2}  {rule.pattern}\n      -> {rule.instead}"
        + (f" (below {rule.folder})" if rule.folder else "")
        + ("" if rule.required else " (reading list)")
        for rule in RULES
    )
    parser = argparse.ArgumentParser(
        prog="python -m tools.check_english",
        description="Check comments, docstrings, messages and documents for words that plain technical English avoids.",
        epilog=f"rules:\n{rules}\n\nThe exit code is 1 if there are findings, except for those of reading lists.\n"
        "Add a finding that is right to ALLOWED in tools/check_english.py, with its reason.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths", nargs="*", type=Path, help=f"files and folders (default: {' '.join(SOURCES)})"
    )
    parser.add_argument("--rules", metavar="N,N", help="only these rules, by number")
    parser.add_argument("--reading", action="store_true", help="also print the findings of reading lists")
    parser.add_argument("--count", action="store_true", help="print the number of findings for each folder")
    parser.add_argument(
        "--commits", metavar="RANGE", help="check the subjects of these commits, for example main~5..main"
    )
    return parser


def _chosen_rules(text: str | None, *, reading: bool) -> list[Rule]:
    if text is None:
        return [rule for rule in RULES if rule.required or reading]
    numbers = {int(number) for number in text.split(",")}
    unknown = numbers - {rule.number for rule in RULES}
    if unknown:
        raise ValueError(f"no such rule: {', '.join(map(str, sorted(unknown)))}")
    return [rule for rule in RULES if rule.number in numbers]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check; return 0 without findings, else 1.

    `arguments` is the command line without the program's name; None takes the process's.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.commits:
        problems = list(check_commits(options.commits))
        print("\n".join(problems) if problems else "English of commit subjects: no findings.")
        return 1 if problems else 0
    try:
        rules = _chosen_rules(options.rules, reading=options.reading)
        files = list(
            files_of([path.resolve() for path in options.paths] or [ROOT / name for name in SOURCES])
        )
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    findings = sorted(
        {finding for path in files for finding in check_file(path, rules) if not is_allowed(finding)},
        key=lambda finding: (finding.path, finding.line, finding.rule.number),
    )
    if options.count:
        for folder, count in sorted(
            Counter(finding.path.rpartition("/")[0] or finding.path for finding in findings).items()
        ):
            print(f"{count:5} {folder}")
    else:
        for finding in findings:
            print(finding)
    failed = sum(finding.rule.required for finding in findings)
    others = len(findings) - failed
    print(
        f"English: {failed or 'no'} findings in {len(files)} files"
        + (f", and {others} on reading lists" if others else "")
        + "."
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
