"""What to break while `tidemill up --demo` runs, what will be seen, and what heals it.

It is there only with TIDEMILL_DEMO. The section of docs/quickstart.md has the same experiments and the same commands: a
test types those of the section and looks for them here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.console.pages.overview import SEEN
from app.console.web.page import Page, Visit
from app.settings import settings

EXAMPLES = Path(__file__).parents[3] / "examples"


def _read(_: Visit) -> Mapping[str, Any]:
    # What `tidemill up` was started in, and everything that it starts.
    here = Path.cwd()
    return {
        "seen": SEEN.get(),
        "here_is": here,
        "environment": _shown(Path(sys.prefix), here),
        "home": _shown(settings().home.absolute(), here),
        "sql": _shown(EXAMPLES / "sql.py", here),
        "at_home": settings().home.absolute() == here / ".tidemill",
        "lease": settings().lease,
    }


def _shown(path: Path, here: Path) -> str:
    """As one would write it there."""
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


PAGES = (Page("demo", "/demo", "demo.html", _read),)
