"""The orders of the example, by real workers and beat: whatever dies on the way, each is shipped or refunded, and each
effect is there once."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.orm import Session

from tests.kit.cli import SCRIPT
from tests.kit.process import ROOT, Process, Processes
from tests.kit.waiting import never_within, wait_until

EXAMPLES = ROOT / "examples"
ORDERS = 40
#: By warehouses; one of each kind is among the orders whatever the customers think of.
KINDS = """
from orders import clerk, customers
from orders.models import create_tables
from orders.outside import ABANDONED, PENNILESS
from tidemill import transaction

create_tables()
with transaction() as session:
    for customer, parts in [
        ("alice", {"north": 30, "south": 20}),
        ("alice", {"north": 80, "south": 70, "harbour": 10}),
        ("bob", {"north": 10, "south": 20, ABANDONED: 30}),
        (PENNILESS, {"north": 10}),
        (clerk.REJECTED, {"north": 200}),
        (clerk.FORGOTTEN, {"south": 200}),
    ]:
        print(*customers.place_order(session, customer, parts))
"""
START_AGAIN = """
import sys
from orders.fulfil import fulfil
from tidemill import start
print(start(fulfil, int(sys.argv[1]), idempotency_key=sys.argv[1]))
"""
_STATES = sa.text("SELECT state::text, count(*) FROM tidemill.process GROUP BY 1")
_TAKEN_BACK = sa.text("SELECT count(*) FROM tidemill.decision WHERE restarts > 0 OR attempts > failures + 1")
_IN_WORK = sa.text("SELECT count(*) FROM tidemill.decision WHERE state = 'WORK' AND claimed_by LIKE 'victim@%'")
_WITHOUT = sa.text(
    "SELECT count(*) FROM orders_order o FULL JOIN tidemill.process p ON p.idempotency_key = o.id::text "
    "WHERE o.id IS NULL OR p.id IS NULL"
)
_PLACED = sa.text("INSERT INTO orders_order (customer, parts) VALUES ('erin', '{\"north\": 30}') RETURNING id")
_STATUS = sa.text("SELECT status FROM orders_order WHERE id = :id")
_MAILS = sa.text("SELECT order_id, about FROM orders_effect WHERE kind = 'mail' ORDER BY order_id, at")
_FAILED_ATTEMPTS = sa.text("SELECT count(*) FROM tidemill.answer WHERE error LIKE 'CourierBusy%' AND refused IS NULL")


def environment(env: Mapping[str, str]) -> dict[str, str]:
    return {
        **env,
        "TIDEMILL_MODULES": "orders.fulfil",
        "TIDEMILL_POLL_INTERVAL": "200ms",
        "TIDEMILL_LEASE": "2s",
        "TIDEMILL_SWEEP_INTERVAL": "500ms",
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, EXAMPLES))),
    }


def states(session: Session) -> dict[str, int]:
    session.rollback()
    return dict(session.execute(_STATES).all())


def count(session: Session, query: sa.TextClause) -> int:
    session.rollback()
    return session.scalar(query) or 0


def caught_at_work(worker: Process, session: Session) -> bool:
    """It is stopped then. What it has just sent off may still be accepted, so it is looked at for a while."""
    worker.stop()
    if never_within(lambda: not count(session, _IN_WORK), 0.3):
        return True
    worker.cont()
    return False


def run(processes: Processes, env: Mapping[str, str], *words: str) -> str:
    """A program, to its end; what it said."""
    program = processes.start([sys.executable, *words], env, "program")
    assert program.wait(90) == 0, program.log
    return program.log


def test_every_order_is_shipped_or_refunded(env: dict[str, str], processes: Processes, session: Session) -> None:
    env = environment(env)
    kinds = run(processes, env, "-c", KINDS).split()
    # First the clerk: the large order among those above is to find him there.
    words = ["-m", "orders.customers", "--orders", str(ORDERS), "--pause", "0.1", "--stay"]
    customers = processes.start([sys.executable, *words], env, "customers")
    customers.wait_for("fulfilment: ", 300)
    beat = processes.beat(env)
    victim = processes.celery_worker(env, 2, name="victim")
    wait_until(lambda: states(session).get("FINISHED", 0) >= 3, 60, "three processes have finished")
    # P3, R2: with work in its hands. Nobody answers for that before its work timeout is over.
    wait_until(lambda: caught_at_work(victim, session), 60, "the victim works")
    victim.kill()
    worker = processes.celery_worker(env, 3, name="heir")
    customers.wait_for(r"fulfilment: .*\n(?!.*tidemill process show)", 90)
    wait_until(lambda: states(session).keys() == {"FINISHED"}, 90, "every process has finished")

    proof = run(processes, env, "-m", "orders.proof", "--within", "60")
    assert "each is there once, and each order as it should be" in proof
    told = re.search(r"fulfilment: (\d+) orders.*charged (\d+) = shipped (\d+) \+ refunded (\d+);", proof)
    assert told is not None, proof
    orders, charged, shipped, refunded = map(int, told.groups())
    assert orders == ORDERS + len(kinds) // 2
    assert charged == shipped + refunded
    assert shipped > 0
    assert refunded > 0
    # P2: an order and its process are committed together, or not at all.
    assert states(session) == {"FINISHED": orders}
    assert count(session, _WITHOUT) == 0
    _ended_as_planned(session, [int(order) for order in kinds[::2]])
    # The test is worth something: work was lost, and couriers failed.
    assert count(session, _TAKEN_BACK) > 0
    assert count(session, _FAILED_ATTEMPTS) > 0
    # P2: registered again, it is the same process.
    order, process = kinds[:2]
    assert run(processes, env, "-c", START_AGAIN, order).strip() == process
    customers.kill()
    beat.terminate()
    assert beat.wait() == 0, beat.log
    worker.terminate()
    assert worker.wait() == 0, worker.log
    # P9: what an actor raises is retried, or read by a decider.
    raised = set(re.findall(r"^orders\.outside\.(\w+):", worker.log, re.MULTILINE))
    assert raised <= {"CourierBusy", "CourierGone", "PaymentRefused"}
    assert worker.log.count("Traceback") == len(re.findall(r"^orders\.outside\.", worker.log, re.MULTILINE))
    assert "is broken" not in worker.log


def _ended_as_planned(session: Session, orders: list[int]) -> None:
    """P9: what is accepted is read by deciders. P6: nobody waits for the clerk for ever. P8: the value."""
    mails: dict[int, list[str]] = {}
    for order, about in session.execute(_MAILS):
        mails.setdefault(order, []).append(about)
    assert [mails[order] for order in orders] == [
        ["shipped", "how was it?"],
        ["shipped", "how was it?"],
        ["a part could not be shipped"],
        ["payment refused"],
        ["not approved"],
        ["nobody has approved it in time"],
    ]
    values = sa.text(
        "SELECT value #>> '{}' FROM tidemill.process WHERE idempotency_key = any(:keys) "
        "ORDER BY idempotency_key::bigint"
    )
    found = session.scalars(values, {"keys": [str(order) for order in orders]}).all()
    assert list(found) == ["shipped", "shipped", "cancelled", "cancelled", "cancelled", "cancelled"]


def test_an_order_by_hand(env: dict[str, str], processes: Processes, session: Session) -> None:
    """By plain SQL and plain text, with a scheduler in the place of beat."""
    env = environment(env)
    run(processes, env, "-c", "from orders.models import create_tables; create_tables()")
    processes.celery_worker(env, 2)
    processes.scheduler(env)
    order = session.execute(_PLACED).scalar_one()
    session.commit()
    # Its program imports none of the example.
    bare = env | {"TIDEMILL_MODULES": "", "PYTHONPATH": str(ROOT)}
    words = [str(SCRIPT), "process", "start", "fulfil", str(order), "--key", str(order), "--wait", "60"]
    begun = processes.start(words, bare, "start")
    assert begun.wait(90) == 0, begun.log
    process, value = begun.log.split()
    assert value == '"shipped"'
    session.rollback()
    assert session.execute(_STATUS, {"id": order}).scalar_one() == "shipped"
    again = processes.start(words, bare, "again")
    assert again.wait(90) == 0, again.log
    assert again.log.split() == [process, value]
    assert states(session) == {"FINISHED": 1}
