"""For searches that no index answers whatever is asked for: they end in time, and say what would make them quicker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app.db import transaction
from app.errors import BadRequest
from recovery.invariants.looking import QUERY_CANCELED

SECONDS = 3


@contextmanager
def patient(seconds: int = SECONDS) -> Iterator[Session]:
    try:
        with transaction() as session:
            session.execute(sa.select(sa.func.set_config("statement_timeout", f"{seconds}s", True)))
            yield session
    except OperationalError as error:
        if getattr(error.orig, "pgcode", None) != QUERY_CANCELED:
            raise
        raise BadRequest(f"this search would take longer than {seconds} s: name a task, a job or a time too") from None
