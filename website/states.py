"""The page of the states, and a picture of each machine."""

from __future__ import annotations

from website.ladder import Ladder, Step
from website.machines import MACHINES, Machine, Outside

HEAD = """# States

What each thing can be in, and what moves it. A test records the moves of real work and finds each of them here.

<!-- Made by `python -m website` from `website/machines.py`. -->
"""


def picture(machine: Machine) -> str:
    columns = machine.columns
    place = {state: number for number, state in enumerate(columns)}
    steps = [Step(tuple(place[each] for each in move.sources), place[move.target], move.why) for move in machine.moves]
    faint = frozenset(place[each] for each in Outside if each in place)
    return Ladder(f"States of {_lower(machine.name)}", tuple(each.value for each in columns), tuple(steps), faint).svg()


def file_name(machine: Machine) -> str:
    return f"states-{machine.table}.svg"


def page() -> str:
    parts = [HEAD]
    for machine in MACHINES:
        rows = [
            f"| {' or '.join(map(_shown, move.sources))} | {_shown(move.target)} | {move.why} |"
            for move in machine.moves
        ]
        parts.append(
            f"## {machine.name}\n\n"
            f"The rows of [`{machine.table}`](schema.md#{machine.table}). {machine.about} says more.\n\n"
            f"![The states of {_lower(machine.name)}](../pictures/{file_name(machine)})\n\n"
            "| from | to | when |\n|---|---|---|\n" + "\n".join(rows) + "\n"
        )
    return "\n".join(parts)


def _shown(state: str) -> str:
    return state if state.startswith("(") else f"`{state}`"


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]
