"""Which status of gRPC an error becomes. The only place that says so: docs/howto/use-rpc.md has the table."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
from grpc import StatusCode
from sqlalchemy.exc import DBAPIError

from app.errors import (
    BadRequest,
    DatabaseError,
    MovesBack,
    NotDeclared,
    NotFound,
    NotMigrated,
    TooFarAhead,
    VersionConflict,
)

#: It travels as a header, percent-encoded.
TEXT_LIMIT = 600
VERSION = "tidemill-version"
_OVER, _AGAIN = "57014", ("40001", "40P01", "55P03")


class Refused(Exception):
    """Before anything was done."""

    def __init__(self, code: StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Told:
    code: StatusCode
    text: str
    metadata: tuple[tuple[str, str], ...] = ()


def of(error: Exception) -> Told:
    match error:
        case Refused():
            return Told(error.code, str(error))
        case BadRequest():
            version = ((VERSION, str(error.version)),) if isinstance(error, VersionConflict) else ()
            return Told(_of_request(error), _storable(str(error)), version)
        case NotMigrated():
            return Told(StatusCode.FAILED_PRECONDITION, "the database is of another release: run 'tidemill migrate'")
        case DatabaseError():
            # With what could not be reached, which is nobody's business out there.
            return Told(StatusCode.UNAVAILABLE, "the database does not answer: try again")
        case DBAPIError():
            return _of_database(error)
        case _:
            return _INTERNAL


_INTERNAL = Told(StatusCode.INTERNAL, "this failed inside of the server, whose log says why")


def _of_request(error: BadRequest) -> StatusCode:
    match error:
        case NotFound():
            return StatusCode.NOT_FOUND
        case MovesBack() | NotDeclared():
            return StatusCode.FAILED_PRECONDITION
        case TooFarAhead():
            return StatusCode.OUT_OF_RANGE
        case VersionConflict():
            return StatusCode.ABORTED
        case _:
            # What is too large too: RESOURCE_EXHAUSTED would say that trying again may help.
            return StatusCode.INVALID_ARGUMENT


def _of_database(error: DBAPIError) -> Told:
    code = getattr(error.orig, "pgcode", None) or ""
    if code == _OVER:
        return Told(StatusCode.DEADLINE_EXCEEDED, "the time of this call was over: nothing was changed")
    if code in _AGAIN:
        return Told(StatusCode.UNAVAILABLE, "another change was in the way: try again")
    return _INTERNAL


def _storable(text: str) -> str:
    return text[:TEXT_LIMIT].encode(errors="replace").decode()


def gone(error: Exception) -> bool:
    """The caller has hung up, or its time is over: nobody is there to be told."""
    return isinstance(error, grpc.RpcError)
