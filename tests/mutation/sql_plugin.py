"""A plugin of pytest: runs the tests that it collected once, then again for every mutant of functions of the database.

Each database that a test is lent has the mutant in the place of the function. The tests come in the order in which they
are given, until one fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import hypothesis
import psycopg2
import pytest
from sqlalchemy.engine import make_url

from tests.kit.database import Databases
from tests.mutation.cores import IN_SQL, OF_SQL
from tests.mutation.sql import function, mutants

#: The first example that fails is enough.
hypothesis.settings.register_profile(
    "mutation in SQL",
    derandomize=True,
    database=None,
    deadline=None,
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--told", help="the file that the fates of the mutants are written to")


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """After those of the tests themselves."""
    hypothesis.settings.load_profile("mutation in SQL")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    source = Path(OF_SQL).read_text()
    for item in session.items:
        if not _passes(session, item):
            pytest.exit(f"{item.nodeid} fails without any mutant", returncode=1)
    fates = {}
    for name in IN_SQL:
        for key, text in mutants(source, name):
            others = [function(source, each) for each in IN_SQL if each != name]
            with _installed(*others, text):
                fates[key] = "survived" if all(_passes(session, item) for item in session.items) else "killed"
    with open(session.config.getoption("--told"), "w") as file:
        json.dump(fates, file)
    return True


def _passes(session: pytest.Session, item: pytest.Item) -> bool:
    before, following = session.testsfailed, next(each for each in session.items if each is not item)
    # Which one comes next, nobody knows before this one has ended.
    session._setupstate.teardown_exact(item)
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    return session.testsfailed == before


@contextmanager
def _installed(*functions: str) -> Iterator[None]:
    """In every database, from its lending on."""
    lend = Databases.lend

    def lent(databases: Databases) -> str:
        url = lend(databases)
        plain = make_url(url).set(drivername="postgresql")
        connection = psycopg2.connect(plain.render_as_string(hide_password=False))
        with connection, connection.cursor() as cursor:
            for text in functions:
                cursor.execute(text)
        connection.close()
        return url

    with patch.object(Databases, "lend", lent):
        yield
