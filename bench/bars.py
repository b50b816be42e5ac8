"""Pictures of figures as SVG: bars from zero with the range of the rounds; goals, and how far each is reached. Pure.

A label has a line of its own and every figure is printed, so that nothing overlaps and nothing depends on a colour.
They have their own ground, and a dark one where the reader prefers that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, MARGIN, ROOM, LINE, BAR, GAP = 800, 16, 190, 16, 14, 12
STYLE = """
.ground{fill:#fdfcf9;stroke:#d8d4ca}.ink{fill:#22262a;stroke:#fdfcf9;stroke-width:3;paint-order:stroke}.soft{fill:#5c636a}
.us{fill:#2b7a6d;stroke:#2b7a6d}.peer{fill:#b3bcc4;stroke:#8b9299}.floor{fill:none;stroke:#5c636a;stroke-dasharray:4 3}
.range{stroke:#22262a;stroke-width:1.5;fill:none}.line{stroke:#8b9299}.goal{stroke:#5c636a;stroke-dasharray:3 3}
.missed{fill:#fdfcf9;stroke:#b4451f;stroke-width:2}.off{fill:#b4451f}
@media (prefers-color-scheme:dark){.ground{fill:#1d2226;stroke:#3a4248}
.ink{fill:#e8eaec;stroke:#1d2226}.soft{fill:#a9b1b8}
.us{fill:#5cc2b0;stroke:#5cc2b0}.peer{fill:#5a646c;stroke:#79828a}.floor{stroke:#a9b1b8}
.range{stroke:#e8eaec}.line{stroke:#79828a}.goal{stroke:#a9b1b8}
.missed{fill:#1d2226;stroke:#f08a5d}.off{fill:#f08a5d}}
""".strip()
KINDS = {"us": "Tidemill", "peer": "peer", "floor": "bare statements"}


@dataclass(frozen=True)
class Bar:
    label: str
    side: str
    value: float
    low: float
    high: float
    shown: str


@dataclass(frozen=True)
class Panel:
    """Bars of one unit, which share a scale."""

    title: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Mark:
    """How far a goal is reached: 1 is just so, 2 is twice as good; and of the rounds from `low` to `high`."""

    label: str
    margin: float
    low: float
    high: float
    shown: str

    @property
    def reached(self) -> bool:
        return self.margin >= 1


def bars(title: str, panels: Sequence[Panel]) -> str:
    sides = list(dict.fromkeys(bar.side for panel in panels for bar in panel.bars))
    parts, y = _legend(sides)
    for panel in panels:
        parts.append(_text(MARGIN, y, panel.title, "soft"))
        y += GAP
        scale = (WIDTH - 2 * MARGIN - ROOM) / (max(bar.high for bar in panel.bars) or 1)
        for bar in panel.bars:
            parts += _bar(bar, y, scale)
            y += LINE + BAR + GAP
        y += LINE + GAP
    said = "; ".join(f"{bar.label}: {bar.shown}" for panel in panels for bar in panel.bars)
    return _picture(title, said, y - LINE - GAP, parts)


def _legend(sides: Iterable[str]) -> tuple[list[str], float]:
    parts, x = [], MARGIN
    for side in sides:
        parts.append(f'<rect class="{side}" x="{x}" y="{MARGIN}" width="22" height="12"/>')
        parts.append(_text(x + 28, MARGIN + 11, KINDS[side], "ink"))
        x += 44 + 8 * len(KINDS[side])
    return parts, MARGIN + 12 + 2 * LINE


def _bar(bar: Bar, y: float, scale: float) -> list[str]:
    top, middle = y + LINE + 2, y + LINE + 2 + BAR / 2
    low, high = MARGIN + bar.low * scale, MARGIN + bar.high * scale
    return [
        _text(MARGIN, y + LINE - 3, bar.label, "ink"),
        f'<rect class="{bar.side}" x="{MARGIN}" y="{top:g}" width="{max(1.0, bar.value * scale):.1f}" height="{BAR}"/>',
        _range(low, high, middle),
        _text(high + 8, top + BAR - 3, bar.shown, "ink", bold=True),
    ]


def goals(title: str, marks: Sequence[Mark]) -> str:
    """By powers of two, so that twice as good is as far from the line as half as good."""
    ends = [math.log2(each) for mark in marks for each in (mark.low, mark.high, mark.margin, 0.5, 2)]
    least, most = min(ends), max(ends)

    def place(margin: float) -> float:
        return MARGIN + (math.log2(margin) - least) / (most - least) * (WIDTH - 2 * MARGIN - ROOM)

    line, top = place(1), MARGIN + 2 * LINE
    parts, y = [_text(max(line, 40), MARGIN + LINE, "the goal", "soft", middle=True)], float(top)
    for mark in marks:
        middle = y + LINE + 2 + BAR / 2
        parts.append(_text(MARGIN, y + LINE - 3, mark.label, "ink"))
        parts.append(f'<line class="line" x1="{MARGIN}" y1="{middle:g}" x2="{WIDTH - MARGIN - ROOM}" y2="{middle:g}"/>')
        parts.append(_range(place(mark.low), place(mark.high), middle))
        parts.append(_sign(place(mark.margin), middle, reached=mark.reached))
        shown, kind = (mark.shown, "ink") if mark.reached else (f"{mark.shown}, missed", "off")
        parts.append(_text(WIDTH - MARGIN - ROOM + 12, middle + 5, shown, kind, bold=True))
        y += LINE + BAR + GAP
    parts.insert(0, f'<line class="goal" x1="{line:.1f}" y1="{top - 8}" x2="{line:.1f}" y2="{y - GAP / 2:g}"/>')
    said = "; ".join(f"{mark.label}: {mark.shown}, {'reached' if mark.reached else 'missed'}" for mark in marks)
    return _picture(title, said, y, parts)


def _sign(x: float, y: float, *, reached: bool) -> str:
    if reached:
        return f'<circle class="us" cx="{x:.1f}" cy="{y:g}" r="5"/>'
    return f'<path class="missed" d="M{x:.1f} {y - 7:g}l7 7l-7 7l-7 -7z"/>'


def _range(low: float, high: float, y: float) -> str:
    return f'<path class="range" d="M{low:.1f} {y - 4:g}v8M{low:.1f} {y:g}H{high:.1f}M{high:.1f} {y - 4:g}v8"/>'


def _picture(title: str, said: str, height: float, parts: Iterable[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" '
            f'height="{height:g}" role="img" font-family="system-ui, sans-serif" font-size="13">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(said)}</desc>",
            f"<style>{STYLE}</style>",
            f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="8"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _text(x: float, y: float, text: str, kind: str, *, bold: bool = False, middle: bool = False) -> str:
    more = ' font-weight="600"' * bold + ' text-anchor="middle"' * middle
    return f'<text class="{kind}" x="{x:.1f}" y="{y:g}"{more}>{escape(text)}</text>'
