"""The command line: `tidemill COMMAND`.

Promises:

- Exit code 0: done; 1: failed; 2: wrong usage; 130: ended by Ctrl-C. An error is one sentence on stderr, never a
  traceback, unless TIDEMILL_LOG_LEVEL is DEBUG.
- `--json` on everything that reads: one document on stdout, times in ISO 8601 with their zone.
- What changes many rows at once says what it will do and asks; `--yes` answers; where nobody can be asked, it refuses.
- No password is shown.
"""

from __future__ import annotations

from app.cli.root import main

__all__ = ["main"]
