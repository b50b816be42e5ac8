"""Of visits, guards, states and walks: what violates each invariant."""

from __future__ import annotations

from tests.kit.damage import RUNNING, Damage, changed


def _visit(entity: str, change: str = "", *, kind: str = "bid", stage: str = "check") -> str:
    found = (
        "INSERT INTO tidemill.stage_visit (kind, entity_id, stage, shard, queue, due_at) VALUES "  # noqa: S608
        f"('{kind}', '{entity}', '{stage}', tidemill.shard('{entity}'), 'stage.{kind}.{stage}', now());"
    )
    return found + (changed("stage_visit", change, f"entity_id = '{entity}'") if change else "")


def _visited(entity: str, change: str, *, kind: str = "bid") -> str:
    run = (
        "state = 'running', pass_key = gen_random_uuid(), claimed_by = 'w/1', claimed_at = now(), "
        "recovery_time = now() + interval '1 h'"
    )
    return _visit(entity, run, kind=kind) + changed("stage_visit", change, f"entity_id = '{entity}'")


def _visit_is(entity: str, columns: str) -> str:
    return f"SELECT state::text, {columns} FROM tidemill.stage_visit WHERE entity_id = '{entity}'"  # noqa: S608


def _guard(entity: str, until: str) -> str:
    return (
        "INSERT INTO tidemill.entity_guard (kind, entity_id, stage, pass_key, until) "  # noqa: S608
        f"VALUES ('lot', '{entity}', 'check', gen_random_uuid(), {until});"
    )


_AGO = "now() - interval '1 d'"
VISITS = (
    Damage(
        "a visit that runs has a pass, and a time at which it is lost",
        _visited("a1", "pass_key = NULL, again_at = '2000-01-01Z'"),
        ("bid a1 check",),
        _visit_is("a1", "due_at = '2000-01-01Z', again_at IS NULL"),
        (("waiting", True, True),),
    ),
    Damage(
        "a visit that does not run has no pass",
        _visit("a2", "pass_key = gen_random_uuid()"),
        ("bid a2 check",),
        _visit_is("a2", "pass_key IS NULL"),
        (("waiting", True),),
    ),
    Damage(
        "a visit that runs says who has it",
        _visited("a3", "claimed_by = NULL"),
        ("bid a3 check",),
        _visit_is("a3", "claimed_by"),
        (("running", "unknown"),),
    ),
    Damage(
        "the claim of a visit ends",
        _visited("a4", "recovery_time = 'infinity'"),
        ("bid a4 check",),
        _visit_is("a4", "isfinite(recovery_time)"),
        (("running", True),),
    ),
    Damage(
        "a visit that waits can be claimed",
        _visit("a5", "not_before = 'infinity'"),
        ("bid a5 check",),
        _visit_is("a5", "not_before IS NULL"),
        (("waiting", True),),
    ),
    Damage(
        "a visit that waits can be claimed in the low lane",
        _visit("a6", "due_at = NULL, low_at = now(), not_before = 'infinity'"),
        ("bid a6 check",),
        _visit_is("a6", "not_before IS NULL, due_at IS NULL"),
        (("waiting", True, True),),
    ),
    Damage(
        "the lost claim of a visit is taken away by a sweep",
        _visited("a7", f"recovery_time = {_AGO}"),
        ("bid a7 check",),
    ),
    Damage(
        "a waiting visit has a time",
        _visit("a8", "due_at = NULL"),
        ("bid a8 check",),
        _visit_is("a8", "due_at IS NOT NULL"),
        (("waiting", True),),
    ),
    Damage(
        "what waits was not asked for again",
        _visit("a9", "again_at = '2000-01-01Z', again_hops = 2"),
        ("bid a9 check",),
        _visit_is("a9", "due_at = '2000-01-01Z', again_at IS NULL, hops, again_hops"),
        (("waiting", True, True, 2, 0),),
    ),
    Damage(
        "a parked visit says why",
        _visit("b1", "state = 'parked'"),
        ("bid b1 check",),
        _visit_is("b1", "error IS NOT NULL"),
        (("parked", True),),
    ),
    Damage(
        "a visit waits in the queue of its stage",
        _visit("b2", "queue = 'stage.bid.sell'"),
        ("bid b2 check",),
        _visit_is("b2", "queue"),
        (("waiting", "stage.bid.check"),),
    ),
    Damage(
        "a visit lies in the shard of its entity",
        _visit("b3", "shard = (shard + 1) % 16"),
        ("bid b3 check",),
        _visit_is("b3", "shard = tidemill.shard('b3')"),
        (("waiting", True),),
    ),
    Damage(
        "a stage that works on an exclusive entity has its guard",
        _visited("b4", "hops = 0", kind="lot"),
        ("lot b4 check",),
        _visit_is("b4", "pass_key IS NULL"),
        (("waiting", True),),
    ),
    Damage(
        "a guard that holds is that of a running visit",
        _guard("b5", "now() + interval '1 h'"),
        ("lot b5",),
        "SELECT FROM tidemill.entity_guard WHERE entity_id = 'b5'",
    ),
    Damage(
        "the guard of an entity ends",
        _visited("b6", "hops = 0", kind="lot")
        + _guard("b6", "'infinity'")
        + changed(
            "entity_guard g",
            "pass_key = v.pass_key FROM tidemill.stage_visit v",
            "g.entity_id = 'b6' AND v.entity_id = 'b6'",
        ),
        ("lot b6",),
        "SELECT isfinite(until) FROM tidemill.entity_guard WHERE entity_id = 'b6'",
        ((True,),),
    ),
    Damage("a guard that is over is taken over, or taken away", _guard("b7", _AGO), ("lot b7",)),
    Damage("a visit belongs to a known stage", _visit("b8", stage="gone"), ("bid b8 gone",)),
    Damage("no visit is parked", _visit("b9", "state = 'parked', error = 'E'"), ("bid b1 check", "bid b9 check")),
    Damage(
        "a state is that of an entity",
        "INSERT INTO tidemill.stage_state (kind, entity_id, stage, type_url, value) SELECT kind, id, 'light', 't', '' "
        "FROM (VALUES ('lamp', '2'), ('lamp', 'no number'), ('pair', 'a/1')) s (kind, id)",
        ("lamp 2 light", "lamp no number light", "pair a/1 light"),
        "SELECT entity_id FROM tidemill.stage_state WHERE kind IN ('lamp', 'pair') ORDER BY kind",
        (("1",), ("a\\/b/1",)),
    ),
    Damage(
        "a state belongs to a known stage",
        "INSERT INTO tidemill.stage_state (kind, entity_id, stage, type_url, value) "
        "VALUES ('lot', '1', 'gone', 't', '')",
        ("lot 1 gone",),
    ),
)


def _part(walk: int, part: int, columns: str = "", values: str = "") -> str:
    return (
        f"INSERT INTO tidemill.resweep_part (resweep_id, part, queue{columns}) "  # noqa: S608
        f"VALUES ({walk}, {part}, 'stage.lot.check.ask'{values});"
    )


def _walk(walk: int, stage: str, columns: str = "", values: str = "") -> str:
    return (
        f"INSERT INTO tidemill.resweep (id, kind, stage, total{columns}) VALUES ({walk}, 'lot', '{stage}', 9{values});"  # noqa: S608
    )


def _walked(part: int, change: str) -> str:
    return _part(1, part, ", state, pass_key, recovery_time, claimed_by, claimed_at", f", {RUNNING}") + changed(
        "resweep_part", change, f"part = {part}"
    )


def _part_is(part: int, columns: str) -> str:
    return f"SELECT state::text, {columns} FROM tidemill.resweep_part WHERE part = {part}"  # noqa: S608


WALKS = (
    Damage(
        "a part of a walk that runs has a pass, and a time at which it is lost",
        _walked(11, "pass_key = NULL"),
        ("1 11",),
        _part_is(11, "recovery_time IS NULL"),
        (("waiting", True),),
    ),
    Damage(
        "a part of a walk that does not run has no pass",
        _part(1, 12, ", pass_key", ", gen_random_uuid()"),
        ("1 12",),
        _part_is(12, "pass_key IS NULL"),
        (("waiting", True),),
    ),
    Damage(
        "a part of a walk that runs says who has it",
        _walked(13, "claimed_by = NULL"),
        ("1 13",),
        _part_is(13, "claimed_by"),
        (("running", "unknown"),),
    ),
    Damage(
        "the claim of a part of a walk ends",
        _walked(14, "recovery_time = 'infinity'"),
        ("1 14",),
        _part_is(14, "isfinite(recovery_time)"),
        (("running", True),),
    ),
    Damage(
        "the lost claim of a part of a walk is taken away by a sweep", _walked(15, f"recovery_time = {_AGO}"), ("1 15",)
    ),
    Damage(
        "a part of a walk that goes on has a time",
        _part(1, 16, ", due_at", ", NULL"),
        ("1 16",),
        _part_is(16, "due_at IS NULL"),
        (("waiting", False),),
    ),
    Damage(
        "a walk that has ended has no part left",
        _walk(2, "sell", ", state, ended_at", ", 'done', now()") + _part(2, 17),
        ("2 17",),
        _part_is(17, "true"),
        (("done", True),),
    ),
    Damage(
        "a walk goes on while a part of it is left",
        _walk(3, "system") + _part(3, 18, ", state", ", 'done'"),
        ("3",),
        "SELECT state, ended_at IS NOT NULL FROM tidemill.resweep WHERE id = 3",
        (("done", True),),
    ),
)
