"""Lines of many processes on one screen, each with the name of where it comes from."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO

import click

COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "bright_cyan", "bright_yellow", "bright_green")
OWN = "tidemill"


class Screen:
    """`closed` is called once when nobody reads any more."""

    def __init__(self, names: list[str], closed: Callable[[], None]) -> None:
        self._names = [OWN, *names]
        self._width = max(map(len, self._names))
        self._lock = threading.Lock()
        self._closed = closed
        self._open = True
        context = click.get_current_context(silent=True)
        self._colour = sys.stdout.isatty() and (context is None or context.color is not False)

    def say(self, text: str) -> None:
        for line in text.splitlines():
            self.show(OWN, line)

    def show(self, name: str, line: str) -> None:
        prefix = f"{name:{self._width}} |"
        if self._colour:
            prefix = click.style(prefix, fg=self._colour_of(name), bold=name == OWN)
        with self._lock:
            if self._open:
                try:
                    sys.stdout.write(f"{prefix} {line}\n")
                    sys.stdout.flush()
                except (OSError, ValueError):
                    self._open = False
                    self._closed()

    def _colour_of(self, name: str) -> str:
        return COLOURS[self._names.index(name) % len(COLOURS)] if name in self._names else COLOURS[0]

    def follow(self, name: str, pipe: IO[bytes]) -> None:
        """Shows what comes out of the pipe, until nobody holds its other end."""

        def run() -> None:
            with pipe, suppress(OSError, ValueError):
                for line in pipe:
                    if text := line.decode(errors="replace").rstrip():
                        self.show(name, text)

        threading.Thread(target=run, name=f"tidemill-{name}", daemon=True).start()
