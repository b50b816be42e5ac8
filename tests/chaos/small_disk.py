"""A file system of a few hundred MB that a drill can fill: a tmpfs, which only root may mount."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

MEGABYTES = 400


@dataclass
class SmallDisk:
    path: Path

    def fill(self) -> None:
        """With one file, to the last block."""
        with self._ballast.open("wb", buffering=0) as out:
            for size in (1 << 20, 1 << 12):
                try:
                    while out.write(b"\0" * size) == size:
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        self._ballast.unlink()

    @property
    def _ballast(self) -> Path:
        return self.path / "ballast"


@contextmanager
def small_disk(at: Path) -> Iterator[SmallDisk]:
    at.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m,mode=0700", "tmpfs", str(at)]
    if os.geteuid() != 0:
        pytest.skip("a small file system can be mounted by root only: do this drill by hand, on a volume of its own")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield SmallDisk(at)
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)
