"""The person who approves large orders: asks now and then what there is, thinks, and answers. A program in another
language would do the same over HTTP."""

from __future__ import annotations

import time

from sqlalchemy.exc import SQLAlchemyError

from tidemill import TidemillError, processes

#: Whose orders are not approved, and whose lie under the others until it is too late.
REJECTED, FORGOTTEN = "mallory", "nemo"
NAME = "the clerk"
PAUSE_SECONDS = 0.3


def sit(limit: int = 10) -> int:
    """Answers what lies there now; how much that was."""
    tasks = processes.outside.poll("approve", limit, worker=NAME)
    for task in tasks:
        _, customer, _ = task.args
        if customer == FORGOTTEN:
            continue
        processes.outside.release(
            task.process_id,
            task.task,
            pass_key=task.pass_key,
            epoch=task.epoch,
            value=customer != REJECTED,
            worker=NAME,
        )
    return len(tasks)


def main() -> None:
    while True:
        try:
            sit()
        except (TidemillError, SQLAlchemyError) as error:
            print(f"{NAME} waits: {error}", flush=True)
            time.sleep(1)
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main()
