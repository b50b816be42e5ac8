"""Where Chromium is. As a program, `python -m tests.browser.chromium`, it installs Debian's where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
NONE = (
    "no Chromium is installed: install Debian's package 'chromium' as root (apt-get install chromium), or put one on "
    "the PATH; the tests in a browser cannot run without it"
)


def found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def arguments() -> list[str]:
    """Chromium's own sandbox does not run as root."""
    return ["--no-sandbox"] if os.geteuid() == 0 else []


def install() -> str | None:
    """As root, and where there is apt."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return None
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in (
        ["update", "-qq"],
        ["install", "-y", "-qq", "--no-install-recommends", "chromium", "fonts-liberation"],
    ):
        subprocess.run([apt, *words], env=env, check=False, stdout=subprocess.DEVNULL)
    return found()


def main() -> int:
    path = found() or install()
    print(path or NONE, file=sys.stdout if path else sys.stderr)
    return 0 if path else 1


if __name__ == "__main__":
    sys.exit(main())
