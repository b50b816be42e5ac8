"""Which status of HTTP an error becomes. The only place that says so: docs/reference/http.md has the table."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.exc import DBAPIError

from app.errors import (
    BadRequest,
    ClaimLost,
    DatabaseError,
    MovesBack,
    NotDeclared,
    NotFound,
    NotMigrated,
    TooFarAhead,
    TooLarge,
    UnknownTask,
    WrongState,
)

TEXT_LIMIT = 1000
#: What a client has to wait before it tries again.
AGAIN_SECONDS = 1
_OVER, _AGAIN = "57014", ("40001", "40P01", "55P03")


class Refused(Exception):
    """Before anything was done."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status, self.code = status, code


@dataclass(frozen=True)
class Told:
    status: int
    code: str
    text: str

    def data(self) -> dict[str, object]:
        return {"error": {"code": self.code, "message": self.text}}

    def headers(self) -> dict[str, str]:
        if self.status == 401:
            return {"WWW-Authenticate": "Bearer"}
        return {"Retry-After": str(AGAIN_SECONDS)} if self.status in (429, 503) else {}


def of(error: Exception, *, well_formed: bool = False) -> Told:
    """`well_formed`: the request was read, and found to be as OpenAPI says."""
    match error:
        case Refused():
            return Told(error.status, error.code, _storable(str(error)))
        case BadRequest():
            return _of_request(error, well_formed=well_formed)
        case ClaimLost():
            return Told(409, "claim_lost", _storable(str(error)))
        case NotMigrated():
            return Told(503, "not_migrated", "the database is of another release: run 'tidemill migrate'")
        case DatabaseError():
            # With what could not be reached, which is nobody's business out there.
            return Told(503, "unavailable", "the database does not answer: try again")
        case DBAPIError():
            return _of_database(error)
        case _:
            return _INTERNAL


_INTERNAL = Told(500, "internal", "this failed inside of the server, whose log says why")


def _of_request(error: BadRequest, *, well_formed: bool) -> Told:
    text = _storable(str(error))
    match error:
        case NotFound() | NotDeclared() | UnknownTask():
            return Told(404, "not_found", text)
        case TooLarge():
            return Told(413, "too_large", text)
        case MovesBack():
            return Told(409, "moves_back", text)
        case WrongState():
            return Told(409, "wrong_state", text)
        case TooFarAhead():
            return Told(422, "too_far_ahead", text)
        case _:
            return Told(422, "unprocessable", text) if well_formed else Told(400, "bad_request", text)


def _of_database(error: DBAPIError) -> Told:
    code = getattr(error.orig, "pgcode", None) or ""
    if code == _OVER:
        return Told(503, "unavailable", "the database took too long: nothing was changed, try again")
    if code in _AGAIN:
        return Told(503, "unavailable", "another change was in the way: try again")
    return _INTERNAL


def _storable(text: str) -> str:
    return text[:TEXT_LIMIT].encode(errors="replace").decode()
