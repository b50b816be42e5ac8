"""The root of all commands, and what becomes of an error: a sentence and an exit code."""

from __future__ import annotations

import io
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from typing import NoReturn, cast

import click
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from app import logs
from app.checks import encodable
from app.errors import SettingsError, TidemillError
from app.near import shown
from app.settings import settings

DONE, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130

COMMANDS = (
    *("up", "migrate", "status", "doctor", "probe", "token", "rpc", "console"),
    *("job", "queue", "ctl", "reactive", "simulate", "stage", "process", "actor", "events", "recover"),
)


class Commands(Mapping[str, click.Command]):
    """Each in the module of its name, which is imported when it is asked for: one needs little of what another does."""

    def __getitem__(self, name: str) -> click.Command:
        if name not in COMMANDS:
            raise KeyError(name)
        return cast(click.Command, getattr(import_module(f"app.cli.{name}"), name))

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


@click.group(commands=Commands(), context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(version("tidemill"), prog_name="tidemill")
@click.pass_context
def tidemill(ctx: click.Context) -> None:
    """Tidemill: work that starts by itself when its reason appears, and is never lost.

    Commands find the database and the broker by TIDEMILL_DATABASE_URL and TIDEMILL_BROKER_URL, and without these, the
    servers that 'tidemill up' runs in this directory (or in TIDEMILL_HOME).
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def main(arguments: list[str] | None = None) -> NoReturn:
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    debug = _debug()
    if debug:
        logging.getLogger().setLevel(logging.DEBUG)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What cannot be written, such as part of a file name, is told in another form.
            stream.reconfigure(errors="backslashreplace")
    if wrong := [word for word in (sys.argv[1:] if arguments is None else arguments) if not encodable(word)]:
        click.echo(f"Error: {shown(wrong[0])} is not UTF-8", err=True)
        return WRONG
    try:
        code = tidemill.main(arguments, prog_name="tidemill", standalone_mode=False)
        sys.stdout.flush()
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        click.echo(f"Error: {_hinted(error)}", err=True)
        return error.exit_code
    except BrokenPipeError:
        # Whoever read our output has enough; what is left in the buffer must not raise at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:  # noqa: BLE001 - never a traceback
        if debug:
            traceback.print_exc()
        click.echo(f"Error: {told(error)}", err=True)
        return FAILED
    return code if isinstance(code, int) else DONE


def _hinted(error: click.ClickException) -> str:
    # Click's word for a number of which the least or the most is said.
    text = " ".join(error.format_message().split()).replace("is not a valid integer range", "is not a whole number")
    context = getattr(error, "ctx", None)
    return text if context is None else f"{text.rstrip('.')} (see '{context.command_path} --help')"


def _debug() -> bool:
    try:
        logs.set_up_others(logging.getLogger(), "tidemill")
        return settings().log_level == "DEBUG"
    except SettingsError:
        return False  # whoever needs the settings will say so


def told(error: Exception) -> str:
    match error:
        case TidemillError():
            return str(error)
        case DBAPIError():
            return f"the database refused: {_first_line(error.orig)}"
        case SQLAlchemyError() | OSError():
            return _first_line(error)
        case _:
            return f"{type(error).__name__}: {_first_line(error)} (TIDEMILL_LOG_LEVEL=DEBUG shows where)"


def _first_line(error: object) -> str:
    return str(error).strip().partition("\n")[0]
