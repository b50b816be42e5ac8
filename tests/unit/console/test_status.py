"""Every error of the tree has its status over HTTP, in one place."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from app import errors
from app.console import status
from app.console.status import Refused

EXPECTED = {
    "NotFound": (404, "not_found"),
    "NotDeclared": (404, "not_found"),
    "UnknownTask": (404, "not_found"),
    "ClaimLost": (409, "claim_lost"),
    "MovesBack": (409, "moves_back"),
    "WrongState": (409, "wrong_state"),
    "TooLarge": (413, "too_large"),
    "TooFarAhead": (422, "too_far_ahead"),
    "DatabaseError": (503, "unavailable"),
    "Unavailable": (503, "unavailable"),
    "PoolExhausted": (503, "unavailable"),
    "NotMigrated": (503, "not_migrated"),
}
TREE = {name: each for name, each in vars(errors).items() if inspect.isclass(each) and issubclass(each, Exception)}


@pytest.mark.parametrize("name", sorted(TREE))
def test_errors_of_ours(name: str) -> None:
    more: tuple[Any, ...] = {"AlreadyRunning": (None,), "VersionConflict": (7,), "RemoteFailed": ("", "")}.get(name, ())
    error = TREE[name]("what was wrong", *more)
    of_request = issubclass(TREE[name], errors.BadRequest)
    otherwise = {False: (400, "bad_request"), True: (422, "unprocessable")} if of_request else {}
    for well_formed in (False, True):
        told = status.of(error, well_formed=well_formed)
        expected = EXPECTED.get(name, otherwise.get(well_formed, (500, "internal")))
        assert (told.status, told.code) == expected
        # What is nobody's business out there is not told.
        assert ("what was wrong" in told.text) == (of_request or name == "ClaimLost")
        assert ("Retry-After" in told.headers()) == (told.status == 503)


@pytest.mark.parametrize(
    ("pgcode", "code"), [("57014", 503), ("40P01", 503), ("55P03", 503), ("42501", 500), (None, 500)]
)
def test_errors_of_the_database(pgcode: str | None, code: int) -> None:
    orig: Any = SimpleNamespace(pgcode=pgcode)
    told = status.of(OperationalError("SELECT secret", {}, orig))
    assert (told.status, "secret" in told.text) == (code, False)


def test_others() -> None:
    assert status.of(ValueError("secret")) == status.of(KeyError("another"), well_formed=True)
    assert status.of(Refused(401, "unauthenticated", "no")).headers() == {"WWW-Authenticate": "Bearer"}
    told = status.of(errors.BadRequest("\ud800" + "x" * 10_000))
    assert len(told.text.encode()) <= status.TEXT_LIMIT
