"""All files below `docs` that are made from code, with what they are to hold."""

from __future__ import annotations

from pathlib import Path

from bench import page
from website import api, states
from website.machines import MACHINES
from website.paths import PATHS

DOCS = Path(__file__).parents[1] / "docs"


def made() -> dict[str, str]:
    pages = {"reference/python.md": api.page(), "reference/states.md": states.page()}
    pictures = {states.file_name(machine): states.picture(machine) for machine in MACHINES}
    pictures |= {name: ladder.svg() for name, ladder in PATHS.items()}
    return pages | page.current() | {f"pictures/{name}": text for name, text in pictures.items()}
