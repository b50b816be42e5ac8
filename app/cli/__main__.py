"""`python -m app.cli`: the same as `tidemill`, by the interpreter that runs."""

from __future__ import annotations

from app.cli import main

main()
