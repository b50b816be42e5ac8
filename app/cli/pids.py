"""Which process is which of those that `tidemill up` runs: a file for each in its home, while it runs.

`kill -9 -$(cat .tidemill/worker-1.pid)` ends that worker with its children, and nobody else's: each of them leads a
group of its own. Without the minus its children would end what they are just doing before they are ended as well.
"""

from __future__ import annotations

from pathlib import Path


class Pids:
    """`home` None: nowhere, as the home is not ours where the servers are of others."""

    def __init__(self, home: Path | None) -> None:
        self._home = home

    def note(self, name: str, pid: int) -> None:
        if self._home is not None:
            self._file(self._home, name).write_text(f"{pid}\n")

    def forget(self, name: str) -> None:
        if self._home is not None:
            self._file(self._home, name).unlink(missing_ok=True)

    @staticmethod
    def _file(home: Path, name: str) -> Path:
        return home / f"{name}.pid"
