"""Every error of the tree has its status, in one place."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from grpc import StatusCode
from sqlalchemy.exc import OperationalError

from app import errors
from app.rpc import status
from app.rpc.status import Refused

INTERNAL = StatusCode.INTERNAL
EXPECTED = {
    "TidemillError": INTERNAL,
    "SettingsError": INTERNAL,
    "EmbeddedError": INTERNAL,
    "AlreadyRunning": INTERNAL,
    "ClaimLost": INTERNAL,
    "RemoteFailed": INTERNAL,
    "DatabaseError": StatusCode.UNAVAILABLE,
    "Unavailable": StatusCode.UNAVAILABLE,
    "PoolExhausted": StatusCode.UNAVAILABLE,
    "NotMigrated": StatusCode.FAILED_PRECONDITION,
    "NotFound": StatusCode.NOT_FOUND,
    "NotDeclared": StatusCode.FAILED_PRECONDITION,
    "MovesBack": StatusCode.FAILED_PRECONDITION,
    "TooFarAhead": StatusCode.OUT_OF_RANGE,
    "VersionConflict": StatusCode.ABORTED,
}
TREE = {name: each for name, each in vars(errors).items() if inspect.isclass(each) and issubclass(each, Exception)}


@pytest.mark.parametrize("name", sorted(TREE))
def test_errors_of_ours(name: str) -> None:
    more: tuple[Any, ...] = {"AlreadyRunning": (None,), "VersionConflict": (7,), "RemoteFailed": ("", "")}.get(name, ())
    told = status.of(TREE[name]("what was wrong", *more))
    assert told.code is EXPECTED.get(name, StatusCode.INVALID_ARGUMENT)
    assert ("what was wrong" in told.text) == issubclass(TREE[name], errors.BadRequest)
    assert told.metadata == (((status.VERSION, "7"),) if name == "VersionConflict" else ())


@pytest.mark.parametrize(
    ("pgcode", "code"),
    [
        ("57014", StatusCode.DEADLINE_EXCEEDED),
        ("40P01", StatusCode.UNAVAILABLE),
        ("55P03", StatusCode.UNAVAILABLE),
        ("42501", INTERNAL),
        (None, INTERNAL),
    ],
)
def test_errors_of_the_database(pgcode: str | None, code: StatusCode) -> None:
    orig: Any = SimpleNamespace(pgcode=pgcode)
    told = status.of(OperationalError("SELECT secret", {}, orig))
    assert told.code is code
    assert "secret" not in told.text


def test_others() -> None:
    assert status.of(ValueError("secret")) == status.of(KeyError("another"))
    assert status.of(ValueError("secret")).code is INTERNAL
    assert status.of(Refused(StatusCode.UNAUTHENTICATED, "no")).code is StatusCode.UNAUTHENTICATED


def test_a_long_text_fits_into_a_header() -> None:
    told = status.of(errors.BadRequest("\ud800" + "x" * 10_000))
    assert len(told.text.encode()) <= status.TEXT_LIMIT
