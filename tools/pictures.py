"""Pictures of the documentation: SVG drawn from text, without a network and without a browser.

``docs/pictures/NAME.txt`` is the source of ``docs/pictures/NAME.svg``; ``make docs`` draws them, and tests compare them with each other and
with the code. A source has one statement a line; ``#`` begins a comment:

```
title Life of a lease
alt What the picture shows, for readers who cannot see it
node KEY COLUMN ROW KIND | Title | detail; detail | file.py:name
arrow FROM TO [bend=PIXELS] [shift=PIXELS] | label | file.py:name
note COLUMN ROW | text
layout COLUMN ROW BOX
```

Columns and rows can be fractional. A kind is ``code`` (of this package), ``yours`` (the user's), ``aws`` or ``end``. ``bend`` makes an arrow a
curve; ``shift`` moves it away from an arrow in the other direction. ``layout`` comes first and gives the distances of columns and rows and the width
of a box, in pixels: 196, 96 and 148 make two columns that a telephone shows at their own size. The last part names the code below ``kinesis_sdk/`` that the picture
shows; it is not drawn.

``docs/pictures/NAME.json`` is the source of curves, which a benchmark writes: ``title``, ``alt``, and ``curves`` with a ``title`` and ``points``
each. A point has ``x`` and the value of each series there, all above 0; both axes are logarithmic.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"

_MARGIN = 26.0
_LINE = 16.0
_LETTER = 6.6
"""Estimated width of a label's letter, in pixels. A label hides the line behind it, so an estimate is enough."""

# The picture has a background of its own, so it is legible whatever color the page around it has. Browsers also choose by the
# color scheme of the system.
_STYLE = """
svg { --paper: #ffffff; --ink: #1f2933; --soft: #52606d; --line: #7b8794;
  --code: #e0f2f1; --code-line: #00796b; --yours: #fff3d6; --yours-line: #b7791f;
  --aws: #e6ecf7; --aws-line: #3f5fa8; --end: #eceff1; --end-line: #78909c; }
@media (prefers-color-scheme: dark) { svg { --paper: #1e2129; --ink: #eceff4; --soft: #b6bfcc; --line: #93a1b3;
  --code: #12413d; --code-line: #4db6ac; --yours: #493711; --yours-line: #e0b04c;
  --aws: #24345c; --aws-line: #8fa9e6; --end: #343a44; --end-line: #9aa7b5; } }
text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: var(--ink); font-size: 12px; }
.title { font-size: 14px; font-weight: 600; }
.detail, .note { fill: var(--soft); }
.paper, .behind { fill: var(--paper); }
.arrow { fill: none; stroke: var(--line); stroke-width: 1.6; }
.head { fill: var(--line); }
.box { stroke-width: 1.5; }
.code { fill: var(--code); stroke: var(--code-line); }
.yours { fill: var(--yours); stroke: var(--yours-line); }
.aws { fill: var(--aws); stroke: var(--aws-line); }
.end { fill: var(--end); stroke: var(--end-line); }
"""

_CURVE_STYLE = """
.grid { stroke: var(--line); stroke-width: 0.4; }
.series { fill: none; stroke-width: 2; }
.series0, .dot0 { stroke: var(--code-line); }
.series1, .dot1 { stroke: var(--yours-line); }
.series2, .dot2 { stroke: var(--end-line); }
path.series1 { stroke-dasharray: 6 3; }
path.series2 { stroke-dasharray: 2 3; }
.series3, .dot3 { stroke: var(--aws-line); }
"""

_PANEL, _PANEL_HEIGHT = 330.0, 210.0
_PANELS_A_ROW = 2
_AXIS = 44.0
"""Room for the numbers at an axis, in pixels."""


class PictureError(ValueError):
    """A source that cannot be drawn; the message names the line."""


@dataclass(frozen=True)
class Layout:
    """Distances of columns and rows, and the width of a box, in pixels."""

    column: float = 292.0
    row: float = 122.0
    box: float = 184.0

    def place(self, column: float, row: float) -> tuple[float, float]:
        """Return the middle of a place."""
        return _MARGIN + self.box / 2 + column * self.column, _MARGIN + 36 + row * self.row


@dataclass(frozen=True)
class Node:
    """A box."""

    layout: Layout
    key: str
    column: float
    row: float
    kind: str
    title: str
    details: tuple[str, ...]
    code: str

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in pixels."""
        return self.layout.box, 34.0 + _LINE * len(self.details)

    @property
    def center(self) -> tuple[float, float]:
        """Middle of the box."""
        return self.layout.place(self.column, self.row)


@dataclass(frozen=True)
class Arrow:
    """An arrow between two boxes."""

    source: str
    target: str
    bend: float
    shift: float
    label: tuple[str, ...]
    code: str


@dataclass(frozen=True)
class Picture:
    """Content of a source."""

    title: str
    alt: str
    nodes: dict[str, Node]
    arrows: tuple[Arrow, ...]
    notes: tuple[tuple[float, float, str], ...]
    layout: Layout


def read_picture(text: str) -> Picture:
    """Read a source; raise PictureError if a line is invalid, or an arrow names a missing box."""
    title = alt = ""
    nodes: dict[str, Node] = {}
    arrows: list[Arrow] = []
    notes: list[tuple[float, float, str]] = []
    layout = Layout()
    for number, line in enumerate(text.splitlines(), start=1):
        head, *parts = (part.strip() for part in line.split("|"))
        word, _, rest = head.partition(" ")
        words = rest.split()
        try:
            if not word or word.startswith("#"):
                continue
            if word == "title":
                title = rest
            elif word == "alt":
                alt = rest
            elif word == "layout":
                if nodes or notes:
                    raise ValueError("layout comes before boxes and notes")
                layout = Layout(*map(float, words))
            elif word == "node":
                key, column, row, kind = words
                nodes[key] = Node(
                    layout,
                    key,
                    float(column),
                    float(row),
                    kind,
                    parts[0],
                    _lines(parts, 1),
                    "".join(parts[2:3]),
                )
            elif word == "arrow":
                options = dict(option.split("=") for option in words[2:])
                bend, shift = float(options.pop("bend", 0)), float(options.pop("shift", 0))
                if options:
                    raise ValueError(f"no such option: {', '.join(options)}")
                arrows.append(Arrow(words[0], words[1], bend, shift, _lines(parts, 0), "".join(parts[1:2])))
            elif word == "note":
                notes.append((float(words[0]), float(words[1]), parts[0]))
            else:
                raise ValueError(f"no such statement: {word}")
        except (ValueError, IndexError) as error:
            raise PictureError(f"line {number}: {error}") from error
    for arrow in arrows:
        if missing := {arrow.source, arrow.target} - nodes.keys():
            raise PictureError(f"an arrow names boxes that are not there: {', '.join(sorted(missing))}")
    if not title or not alt:
        raise PictureError("title or alt is missing")
    return Picture(title, alt, nodes, tuple(arrows), tuple(notes), layout)


def draw(picture: Picture) -> str:
    """Return the picture as SVG."""
    layout = picture.layout
    ends = [node.center for node in picture.nodes.values()]
    ends += [layout.place(column, row) for column, row, _ in picture.notes]
    tallest = max(node.size[1] for node in picture.nodes.values())
    width = max(x for x, _ in ends) + layout.box / 2 + _MARGIN
    height = max(y for _, y in ends) + tallest / 2 + _MARGIN
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title alt">',
        f'<title id="title">{escape(picture.title)}</title>',
        f'<desc id="alt">{escape(picture.alt)}</desc>',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">',
        '<path class="head" d="M0 0 L8 4 L0 8 z"/></marker></defs>',
        f'<rect class="paper" width="{width:g}" height="{height:g}" rx="8"/>',
    ]
    drawn = [_arrow(picture, arrow) for arrow in picture.arrows]
    lines += [curve for curve, _ in drawn]
    for node in picture.nodes.values():
        lines += _box(node)
    lines += [line for _, label in drawn for line in label]
    for column, row, text in picture.notes:
        x, y = layout.place(column, row)
        lines.append(f'<text class="note" x="{x - layout.box / 2:g}" y="{y:g}">{escape(text)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def draw_curves(source: Mapping[str, Any]) -> str:
    """Return curves as SVG: a panel for each, with the same scale of values.

    Raises PictureError if there is no point, or a number is not above 0.
    """
    curves = source["curves"]
    values = [value for curve in curves for point in curve["points"] for value in point.values()]
    if not values or min(values) <= 0:
        raise PictureError("curves need points, and numbers above 0")
    series = list(
        dict.fromkeys(key for curve in curves for point in curve["points"] for key in point if key != "x")
    )
    costs = [
        value for curve in curves for point in curve["points"] for key, value in point.items() if key != "x"
    ]
    bottom, top = math.floor(math.log10(min(costs))), math.ceil(math.log10(max(costs)))
    rows = -(-len(curves) // _PANELS_A_ROW)
    width = 2 * _MARGIN + _PANELS_A_ROW * (_PANEL + _AXIS)
    height = 2 * _MARGIN + 30 + rows * (_PANEL_HEIGHT + 2 * _AXIS)
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title alt">',
        f'<title id="title">{escape(source["title"])}</title>',
        f'<desc id="alt">{escape(source["alt"])}</desc>',
        f"<style>{_STYLE.rstrip()}{_CURVE_STYLE}</style>",
        f'<rect class="paper" width="{width:g}" height="{height:g}" rx="8"/>',
        f'<text class="title" x="{_MARGIN:g}" y="{_MARGIN:g}">CPU µs a record</text>',
    ]
    for index, name in enumerate(series):
        x = _MARGIN + 150 + index * 110
        lines.append(f'<path class="series series{index}" d="M{x:g} {_MARGIN - 4:g} h26"/>')
        lines.append(f'<text x="{x + 32:g}" y="{_MARGIN:g}">{escape(name)}</text>')
    for index, curve in enumerate(curves):
        row, column = divmod(index, _PANELS_A_ROW)
        left = _MARGIN + _AXIS + column * (_PANEL + _AXIS)
        lines += _panel(curve, series, left, _MARGIN + 50 + row * (_PANEL_HEIGHT + 2 * _AXIS), bottom, top)
    return "\n".join([*lines, "</svg>", ""])


def _panel(
    curve: Mapping[str, Any], series: Sequence[str], left: float, upper: float, bottom: int, top: int
) -> list[str]:
    """Return one curve of each series, in a box."""
    points = curve["points"]
    first, last = (math.log10(points[at]["x"]) for at in (0, -1))
    inner = _PANEL - 60

    def x_of(point: Mapping[str, float]) -> float:
        return left + 14 + inner * (math.log10(point["x"]) - first) / ((last - first) or 1.0)

    def y_of(value: float) -> float:
        return upper + _PANEL_HEIGHT * (1 - (math.log10(value) - bottom) / (top - bottom))

    lines = [f'<text class="title" x="{left:g}" y="{upper - 10:g}">{escape(curve["title"])}</text>']
    for power in range(bottom, top + 1):
        y = y_of(10.0**power)
        lines.append(f'<path class="grid" d="M{left:g} {y:.1f} h{inner + 28:g}"/>')
        lines.append(
            f'<text class="detail" text-anchor="end" x="{left - 6:g}" y="{y + 4:.1f}">{10.0**power:g}</text>'
        )
    lines += [
        f'<text class="detail" text-anchor="middle" x="{x_of(point):.1f}" y="{upper + _PANEL_HEIGHT + 18:g}">{point["x"]:,}</text>'
        for point in points
    ]
    labels: list[tuple[float, float, float]] = []
    for index, name in enumerate(series):
        there = [(x_of(point), y_of(point[name]), point[name]) for point in points if name in point]
        if not there:
            continue
        path = " L".join(f"{x:.1f} {y:.1f}" for x, y, _ in there)
        lines.append(f'<path class="series series{index}" d="M{path}"/>')
        lines += [
            f'<circle class="series dot{index}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y, _ in there
        ]
        x, y, value = there[-1]
        labels.append((y, x, value))
    lowest: dict[float, float] = {}
    for y, x, value in sorted(labels):
        lowest[x] = below = max(y, lowest.get(x, -math.inf) + 12)  # Labels must not overlap.
        lines.append(f'<text x="{x + 6:.1f}" y="{below + 4:.1f}">{value:.3g}</text>')
    return lines


def _lines(parts: Sequence[str], index: int) -> tuple[str, ...]:
    text = parts[index] if len(parts) > index else ""
    return tuple(line.strip() for line in text.split(";") if line.strip())


def _box(node: Node) -> list[str]:
    (x, y), (width, height) = node.center, node.size
    top = y - height / 2
    lines = [
        f'<rect class="box {node.kind}" x="{x - width / 2:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="7"/>',
        f'<text class="title" text-anchor="middle" x="{x:g}" y="{top + 22:g}">{escape(node.title)}</text>',
    ]
    return lines + [
        f'<text class="detail" text-anchor="middle" x="{x:g}" y="{top + 22 + _LINE * (index + 1):g}">{escape(line)}</text>'
        for index, line in enumerate(node.details)
    ]


def _arrow(picture: Picture, arrow: Arrow) -> tuple[str, list[str]]:
    """Return the curve and its label."""
    source, target = picture.nodes[arrow.source], picture.nodes[arrow.target]
    (x1, y1), (x2, y2) = source.center, target.center
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    normal = ((y1 - y2) / length, (x2 - x1) / length)
    x1, y1 = x1 + normal[0] * arrow.shift, y1 + normal[1] * arrow.shift
    x2, y2 = x2 + normal[0] * arrow.shift, y2 + normal[1] * arrow.shift
    cx = (x1 + x2) / 2 + normal[0] * arrow.bend * 2
    cy = (y1 + y2) / 2 + normal[1] * arrow.bend * 2
    x1, y1 = _border(source, (x1, y1), (cx, cy))
    x2, y2 = _border(target, (x2, y2), (cx, cy))
    curve = f'<path class="arrow" marker-end="url(#head)" d="M{x1:.1f} {y1:.1f} Q{cx:.1f} {cy:.1f} {x2:.1f} {y2:.1f}"/>'
    mx, my = (x1 + 2 * cx + x2) / 4, (y1 + 2 * cy + y2) / 4
    label: list[str] = []
    if arrow.label:
        width = max(len(line) for line in arrow.label) * _LETTER + 6
        top = my - _LINE * len(arrow.label) / 2
        label.append(
            f'<rect class="behind" x="{mx - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" '
            f'height="{_LINE * len(arrow.label):g}" rx="3"/>'
        )
        label += [
            f'<text text-anchor="middle" x="{mx:.1f}" y="{top + 12 + _LINE * index:.1f}">{escape(line)}</text>'
            for index, line in enumerate(arrow.label)
        ]
    return curve, label


def _border(node: Node, start: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    """Return the point where a line from a point inside a box leaves it, with a small gap."""
    (x, y), (width, height) = node.center, node.size
    dx, dy = towards[0] - start[0], towards[1] - start[1]
    steps = []
    if dx:
        steps.append((x + math.copysign(width / 2 + 3, dx) - start[0]) / dx)
    if dy:
        steps.append((y + math.copysign(height / 2 + 3, dy) - start[1]) / dy)
    step = min((step for step in steps if step >= 0), default=0.0)
    return start[0] + dx * step, start[1] + dy * step


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw every picture whose source is in the folder."""
    parser = argparse.ArgumentParser(description="Draw the pictures of the documentation.")
    parser.add_argument("folder", type=Path, nargs="?", default=PICTURES)
    folder: Path = parser.parse_args(arguments).folder
    for source in sorted(folder.glob("*.txt")):
        source.with_suffix(".svg").write_text(
            draw(read_picture(source.read_text(encoding="utf-8"))), encoding="utf-8"
        )
    for source in sorted(folder.glob("*.json")):
        source.with_suffix(".svg").write_text(
            draw_curves(json.loads(source.read_text(encoding="utf-8"))), encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
