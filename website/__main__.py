"""Writes all that is made from code."""

from __future__ import annotations

from website.made import DOCS, made

if __name__ == "__main__":
    for name, text in made().items():
        path = DOCS / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
