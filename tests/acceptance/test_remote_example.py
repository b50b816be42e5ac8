"""The example service beside real workers, as its user runs both: asked, visited, told of what was saved (S14, S18)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from tests.kit.process import ROOT, Processes
from tests.kit.waiting import wait_until

SECONDS = 300
TOKEN = "a word that nobody guesses"
OFFERS = """
INSERT INTO classifieds_offer
    (id, seller, category, catalogue, year, mileage, price, predicted_price, status, published_at)
SELECT 'o-' || n, 'alice', 'vehicles/cars', 3, 2020, 60000, 12000, 13000, 'on air', now() FROM generate_series(1, 5) n
"""


@pytest.fixture
def env(env: dict[str, str], tmp_path: Path, processes: Processes) -> dict[str, str]:
    env = env | {"PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}"}
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    words = ["-m", "remote_python", "--listen", "127.0.0.1:0", "--token-file", str(tmp_path / "token")]
    service = processes.start([sys.executable, *words], env, "service")
    address = service.wait_for(r"listening on \S+").split()[-1]
    (tmp_path / "remote.toml").write_text(
        f'[[stage]]\nkind = "offer"\nname = "score"\naddresses = ["{address}"]\nplaintext = true\nsaved = true\n'
        'watches = ["status", "published_at", "photos", "price", "predicted_price"]\ntoken_file = "token"\n'
    )
    return env | {"TIDEMILL_MODULES": "classifieds.models", "TIDEMILL_REMOTE_STAGES": str(tmp_path / "remote.toml")}


def test_the_example_scores_offers(env: dict[str, str], processes: Processes, session: Session) -> None:
    def qualities() -> list[int | None]:
        session.rollback()
        return list(session.execute(sa.text("SELECT DISTINCT quality FROM classifieds_offer")).scalars())

    made = processes.start([sys.executable, "-m", "classifieds.models"], env, "tables")
    assert made.wait() == 0
    processes.celery_worker(env)
    processes.scheduler(env)
    session.execute(sa.text(OFFERS))
    session.commit()
    wait_until(lambda: qualities() == [60], SECONDS, "all are scored")
    (service,) = [each for each in processes.started if each.name == "service"]
    service.wait_for(lambda log: log.count("quality 60") == 5, SECONDS)
    session.execute(sa.text("UPDATE classifieds_offer SET price = 20000"))
    session.commit()
    wait_until(lambda: qualities() == [40], SECONDS, "all are scored anew")
    service.wait_for(lambda log: log.count("quality 40") == 5, SECONDS)
    # The timers of the weeks to come stay armed.
    waiting = sa.text("SELECT count(*) FROM tidemill.stage_visit WHERE stage = 'score' AND due_at > now()")
    session.rollback()
    assert session.execute(waiting).scalar_one() == 5
