"""A picture as SVG: columns, and steps between them from top to bottom. Nothing overlaps, whatever is said. Pure.

It has its own ground, so that it can be read on any page; and a dark one where the reader prefers that.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from html import escape

MARGIN, HEAD, LINE, GAP = 16, 34, 16, 20
#: The more columns, the narrower: a page shows a wide picture smaller, and it is to be read all the same.
WIDE, NARROW, ROOM = 172, 118, 900
LETTER = 6.6
STYLE = """
.ground{fill:#fdfcf9;stroke:#d8d4ca}.ink{fill:#22262a;stroke:#fdfcf9;stroke-width:4;paint-order:stroke}
.name{fill:#22262a}.soft{fill:#5c636a}.box{fill:#dcefeb;stroke:#2b7a6d}
.none{fill:none;stroke:#8b9299;stroke-dasharray:4 3}.life{stroke:#bcc2c7;stroke-dasharray:2 5}
.step{stroke:#2b7a6d;stroke-width:1.8;fill:none}.tip{fill:#2b7a6d}
@media (prefers-color-scheme:dark){.ground{fill:#1d2226;stroke:#3a4248}
.ink{fill:#e8eaec;stroke:#1d2226}.name{fill:#e8eaec}.soft{fill:#a9b1b8}
.box{fill:#17453d;stroke:#5cc2b0}.none{stroke:#79828a}.life{stroke:#4a535a}.step{stroke:#5cc2b0}.tip{fill:#5cc2b0}}
""".strip()


@dataclass(frozen=True)
class Step:
    """From columns, by their place, to one; in the same column it is a note beside its line."""

    sources: tuple[int, ...]
    target: int
    text: str


@dataclass(frozen=True)
class Ladder:
    """`faint`: columns that are no place, but nothing."""

    title: str
    columns: tuple[str, ...]
    steps: tuple[Step, ...]
    faint: frozenset[int] = frozenset()

    @property
    def column(self) -> int:
        return max(NARROW, min(WIDE, ROOM // len(self.columns)))

    def svg(self) -> str:
        parts, y = [], MARGIN + HEAD + GAP
        for step in self.steps:
            drawn, y = self._step(step, y)
            parts += drawn
        width, height = 2 * MARGIN + self.column * len(self.columns), y + MARGIN - 4
        said = "; ".join(f"{self._from(step)}: {step.text}" for step in self.steps)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                f'height="{height}" role="img" font-family="system-ui, sans-serif" font-size="13">',
                f"<title>{escape(self.title)}</title>",
                f"<desc>{escape(said)}</desc>",
                f"<style>{STYLE}</style>",
                f'<rect class="ground" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
                *self._heads(height),
                *parts,
                "</svg>\n",
            ]
        )

    def _middle(self, place: int) -> int:
        return MARGIN + self.column * place + self.column // 2

    def _from(self, step: Step) -> str:
        return f"{' or '.join(self.columns[each] for each in step.sources)} to {self.columns[step.target]}"

    def _heads(self, height: int) -> list[str]:
        parts: list[str] = []
        half = self.column // 2 - 8
        for place, name in enumerate(self.columns):
            x, kind = self._middle(place), "none" if place in self.faint else "box"
            parts += [
                f'<line class="life" x1="{x}" y1="{MARGIN + HEAD}" x2="{x}" y2="{height - 12}"/>',
                f'<rect class="{kind}" x="{x - half}" y="{MARGIN}" width="{2 * half}" height="{HEAD}" rx="6"/>',
                _text(x, MARGIN + 22, name, "name", bold=True),
            ]
        return parts

    def _step(self, step: Step, y: int) -> tuple[list[str], int]:
        """What it is drawn of, and where the next one begins."""
        places = [*step.sources, step.target]
        left, right = self._middle(min(places)), self._middle(max(places))
        note = left == right
        room = self.column - 24 if note else max(right - left - 24, self.column - 24)
        lines = textwrap.wrap(step.text, max(12, int(room / LETTER)))
        if note:
            return self._note(step.target, lines, y)
        parts = [_text((left + right) / 2, y + LINE * number, line, "ink") for number, line in enumerate(lines)]
        y += LINE * len(lines) - 6
        end = self._middle(step.target)
        for source in step.sources:
            begin, side = self._middle(source), 1 if source < step.target else -1
            parts.append(f'<path class="step" d="M{begin} {y}H{end - 8 * side}"/>')
            parts.append(f'<circle class="tip" cx="{begin}" cy="{y}" r="3.5"/>')
            parts.append(f'<path class="tip" d="M{end} {y}l{-9 * side} -5v10z"/>')
        return parts, y + LINE + GAP - 4

    def _note(self, place: int, lines: list[str], y: int) -> tuple[list[str], int]:
        x, height, half = self._middle(place), LINE * len(lines) + 10, self.column // 2 - 4
        parts = [f'<rect class="ground" x="{x - half}" y="{y - LINE}" width="{2 * half}" height="{height}" rx="5"/>']
        parts += [_text(x, y - 1 + LINE * number, line, "soft") for number, line in enumerate(lines)]
        return parts, y + height + GAP - 6


def _text(x: float, y: float, text: str, kind: str, *, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="middle"{weight}>{escape(text)}</text>'
