"""Of operations and their items: what violates each invariant."""

from __future__ import annotations

from tests.kit.damage import Damage, changed

#: Of what is sound, each as it should be: one waits, one has been worked on, one is over.
SOUND = """
INSERT INTO tidemill.operation (id, kind, selection, parameters, total, next_at)
VALUES (1, 'recover', '{}', '{}', 2, now() + interval '1 h');
INSERT INTO tidemill.operation (id, kind, state, selection, parameters, total, done)
VALUES (2, 'recover', 'PAUSED', '{}', '{}', 2, 1);
INSERT INTO tidemill.operation (id, kind, state, ended_at, selection, parameters, total, done, failed)
VALUES (3, 'recover', 'DONE', now(), '{}', '{}', 2, 1, 1);
INSERT INTO tidemill.operation (id, kind, state, ended_at, selection, parameters, total)
VALUES (4, 'recover', 'CANCELLED', now(), '{}', '{}', 2);
INSERT INTO tidemill.operation_item (operation_id, position, process_id, state, at)
SELECT id, position, 1000 + position, cast(CASE WHEN id = 1 OR id = 4 OR (id = 2 AND position = 2) THEN 'WAITING'
    WHEN id = 3 AND position = 2 THEN 'FAILED' ELSE 'DONE' END AS tidemill.operation_item_state), now()
FROM tidemill.operation, generate_series(1, 2) position;
SELECT setval('tidemill.operation_id_seq', 1000);
"""


def _operation(number: int, change: str = "", *, waiting: int = 2, done: int = 0) -> str:
    """With so many items that wait, behind so many that are done."""
    found = (
        "INSERT INTO tidemill.operation (id, kind, selection, parameters, total, done, next_at) VALUES "  # noqa: S608
        f"({number}, 'recover', '{{}}', '{{}}', {waiting + done}, {done}, now() + interval '1 h');"
        "INSERT INTO tidemill.operation_item (operation_id, position, process_id, state) "
        f"SELECT {number}, i, 1000 + i, cast(CASE WHEN i > {done} THEN 'WAITING' ELSE 'DONE' END "
        f"AS tidemill.operation_item_state) FROM generate_series(1, {waiting + done}) i;"
    )
    return found + (changed("operation", change, f"id = {number}") if change else "")


def _without(table: str, where: str) -> str:
    return f"DELETE FROM tidemill.{table} WHERE {where};"  # noqa: S608


def _is(number: int, columns: str) -> str:
    return f"SELECT state::text, {columns} FROM tidemill.operation WHERE id = {number}"  # noqa: S608


_COUNTS = "total, done, failed, skipped, why"
_TOO_EARLY = "it had ended while items were left"
OPERATIONS = (
    Damage(
        "an operation does what is known",
        _operation(11, "kind = 'conjure'"),
        ("11",),
        _is(11, "ended_at IS NOT NULL"),
        (("CANCELLED", True),),
    ),
    Damage(
        "an operation has a rate at which it comes to an end",
        _operation(12, "rate = 0") + _operation(13, "rate = 'NaN'") + _operation(14, "rate = 'Infinity'"),
        ("12", "13", "14"),
        _is(13, "rate"),
        (("RUNNING", 100.0),),
    ),
    Damage(
        "the next items of an operation come",
        _operation(15, "next_at = 'infinity'"),
        ("15",),
        _is(15, "next_at <= now()"),
        (("RUNNING", True),),
    ),
    Damage(
        "an operation has the items that it was started over",
        _operation(16, waiting=3, done=1)
        + _without("operation_item", "operation_id = 16 AND position = 3")
        + _operation(17, waiting=1)
        + changed("operation", "total = 0", "id = 17"),
        ("16", "17"),
        _is(16, _COUNTS),
        (("PAUSED", 3, 1, 0, 0, "it was started over 4 items, and has 3"),),
    ),
    Damage(
        "an operation counts what became of its items",
        _operation(18, "done = 0, failed = 3", waiting=3, done=1) + _operation(19, "skipped = 9", done=1),
        ("18", "19"),
        _is(19, _COUNTS),
        (("RUNNING", 3, 1, 0, 0, None),),
    ),
    Damage(
        "an operation that is done has no item left",
        _operation(20, "state = 'DONE', ended_at = now(), done = 3", done=1),
        ("20",),
        _is(20, f"ended_at IS NULL, {_COUNTS}"),
        (("PAUSED", True, 3, 1, 0, 0, _TOO_EARLY),),
    ),
    Damage(
        "an operation goes on while an item is left",
        _operation(21, "state = 'PAUSED'", waiting=0, done=3) + _operation(22, waiting=0, done=1),
        ("21", "22"),
        _is(21, f"ended_at IS NOT NULL, {_COUNTS}"),
        (("DONE", True, 3, 3, 0, 0, None),),
    ),
    Damage(
        "an item is that of an operation",
        _operation(23) + _operation(24) + _without("operation", "id IN (23, 24)"),
        ("23", "24"),
        "SELECT count(*) FROM tidemill.operation_item WHERE operation_id IN (23, 24)",
        ((0,),),
    ),
    Damage(
        "an operation that is due is worked on",
        _operation(25, "next_at = now() - interval '2 min'"),
        ("25",),
    ),
    Damage(
        "no operation has paused itself",
        _operation(26, "state = 'PAUSED', why = '10 of the last 20 items failed'"),
        ("26",),
    ),
    Damage(
        "the next operation has a number of its own",
        "SELECT setval('tidemill.operation_id_seq', 5)",
        ("tidemill.operation_id_seq",),
        "SELECT nextval('tidemill.operation_id_seq') > max(id) FROM tidemill.operation",
        ((True,),),
    ),
)
