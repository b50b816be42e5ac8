"""`tidemill process abort`."""

from __future__ import annotations

import click

from app.cli.output import agree, several, yes_option
from app.cli.process_restart import restart
from app.cli.process_words import ProcessId, standing
from app.errors import BadRequest
from processes import operate
from processes.states import ENDED, TaskState
from processes.wording import clean


@click.command()
@click.argument("process_id", metavar="ID", type=ProcessId())
@click.option("--reason", metavar="TEXT", help="Why: kept in the audit.")
@yes_option
def abort(*, process_id: int, reason: str | None, yes: bool) -> None:
    """Ends a process that has not finished.

    Nothing more of it is handed out, and no answer is taken; what is in work at that moment is not stopped. Asks. A
    restart lets it go on.

    \b
    Example:
      tidemill process abort 17 --reason 'ordered twice'
    """
    found = standing(process_id)
    if found.state in ENDED:
        raise BadRequest(f"process {process_id} is {found.state}: only one that goes on can be aborted")
    left = sum(task.state is not TaskState.FINISHED for task in found.tasks)
    of = f", {left} of {several(len(found.tasks), 'task')} not finished" if found.tasks else ""
    click.echo(f"process {process_id} {clean(found.name)} is {found.state}{of}")
    agree(f"Abort process {process_id}?", yes=yes)
    operate.abort(process_id, reason=reason)
    click.echo(f"process {process_id} is aborted")


COMMANDS = (restart, abort)
