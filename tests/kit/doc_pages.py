"""What a reader of a page does: writes its files, types its commands, and compares what they say.

A block with a title is a file. A block of commands is typed; a block `text` after it is what they print, with `…` for
what is left out, and may take a moment to become true: its last command, which only looks, is typed again until it is.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.kit.cli import SCRIPT, Said, Tidemill
from tests.kit.process import ROOT, Process
from tests.kit.waiting import wait_until

DOCS = ROOT / "docs"
BLOCK = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
#: What a reader does once, on his machine; `make setup` and `make demo` have tests of their own.
ON_THE_MACHINE = ("make", ".", "mkdir", "cd")
#: What changes nothing, and may be typed again.
LOOKS = re.compile(r"tidemill |python look|python examples/sql.py \"select ")


@dataclass(frozen=True)
class Block:
    language: str
    title: str
    text: str

    @property
    def commands(self) -> list[str]:
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for each in lines if (line := each.partition(" #")[0].strip())]


def blocks(page: str, without: str = "") -> list[Block]:
    """`page`: below `docs`; with `#Heading`, that section of it. `without`: not the section of this heading."""
    text = _text(page)
    return [Block(*found) for found in BLOCK.findall(text.replace(_text(f"{page}#{without}"), "") if without else text)]


def _text(page: str) -> str:
    name, _, heading = page.partition("#")
    text = (DOCS / name).read_text()
    if heading:
        text = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert text, page
    return text


def files(page: str) -> dict[str, str]:
    """By name, as they are at the end of the page."""
    return {block.title: block.text for block in blocks(page) if block.title}


def typed(page: str, without: str = "") -> Iterator[tuple[list[str], str | None]]:
    """The commands of each block of them, with what is printed then, if the page says so; code without a name is a
    program too."""
    found = [block for block in blocks(page, without) if not block.title]
    for block, after in zip(found, [*found, Block("", "", "")][1:], strict=True):
        wanted = after.text if after.language == "text" else None
        if block.language == "sh":
            yield block.commands, wanted
        if block.language == "python":
            yield [shlex.join(["python", "-c", block.text])], wanted


def printed(wanted: str, said: str) -> bool:
    """Each line stands in what was said, one after the other."""
    parts = [re.escape(part.strip()) for line in wanted.splitlines() for part in (*line.split("…"), "\n")]
    pattern = ".*?".join(part for part in parts if part != re.escape("\n"))
    return re.search(pattern, said, re.DOTALL) is not None


@dataclass
class Reader:
    """`serve` is given the modules that services are to import, when the page says to start them; `celery` the
    settings and the words of a program of Celery's, which goes on beside. `again` says of what was typed, block by
    block, whether it is to be typed once more; then `after` is told of it. Without `tidemill`, the command is a program
    like others."""

    folder: Path
    env: Mapping[str, str]
    tidemill: Tidemill | None = None
    serve: Callable[[str], object] | None = None
    celery: Callable[[Mapping[str, str], list[str]], Process] | None = None
    again: Callable[[list[str]], bool] = lambda _: False
    after: Callable[[list[str]], object] = len
    beside: list[Process] = field(default_factory=list)
    done: int = 0

    def follow(self, page: str, without: str = "") -> None:
        for name, text in files(page).items():
            (self.folder / name).write_text(text)
        for commands, wanted in typed(page, without):
            said = [self._type(command) for command in commands]
            while self.again(commands):
                said = [self._type(command) for command in commands]
            if wanted is not None:
                self._compare(commands[-1], wanted, "\n".join(said))
            self.after(commands)

    def _compare(self, last: str, wanted: str, said: str) -> None:
        seen = [said]

        def is_there() -> bool:
            if any(printed(wanted, text) for text in (seen[0], *(each.log for each in self.beside))):
                return True
            if LOOKS.match(last):
                seen[0] = self._type(last)
            return printed(wanted, seen[0])

        try:
            wait_until(is_there, 180)
        except AssertionError:
            raise AssertionError(f"{last} does not say\n{wanted}\nbut\n{seen[0]}") from None

    def _type(self, command: str) -> str:
        words = shlex.split(command)
        settings = dict(word.split("=", 1) for word in words if re.match(r"TIDEMILL_\w+=", word))
        words = words[len(settings) :]
        if words[0] in ON_THE_MACHINE:
            return ""
        self.done += 1
        match words:
            case ["tidemill", "up"] if self.serve:
                self.serve(settings["TIDEMILL_MODULES"])
                return ""
            case ["celery", *rest] if self.celery:
                self.beside.append(self.celery(settings, rest))
                return ""
            case ["kill" | "rm", *_]:
                said = self._run(["sh", "-c", command], settings)
            case ["tidemill", *rest] if self.tidemill and not settings:
                said = self.tidemill("", *rest)
            case ["tidemill", *rest]:  # its modules are not for the process of the tests
                said = self._run([str(SCRIPT), *rest], settings)
            case ["python", *rest]:
                said = self._run([sys.executable, *rest], settings)
            case _:
                raise AssertionError(f"the reader of pages does not know how to type {command}")
        assert said.code == 0, f"{command}: {said.out}{said.err}"
        return said.out

    def _run(self, command: list[str], settings: Mapping[str, str]) -> Said:
        env = {**self.env, **settings}
        done = subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, check=False, timeout=120
        )
        return Said(done.returncode, done.stdout, done.stderr)
