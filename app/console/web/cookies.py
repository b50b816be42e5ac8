"""The cookies of the console: of the session, of the form to sign in, and of how pages look."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

THEMES = ("light", "dark")
_THEME = "tidemill_theme"


@dataclass(frozen=True)
class Cookie:
    """No script reads it, no request of another site carries it, and where there is TLS it goes over that alone."""

    name: str

    def _called(self, secure: bool) -> str:  # noqa: FBT001
        # With this beginning, browsers take it from this very host over TLS only.
        return f"__Host-{self.name}" if secure else self.name

    def read(self, request: Request) -> str | None:
        return request.cookies.get(self._called(is_secure(request)))

    def write(self, request: Request, response: Response, value: str) -> None:
        secure = is_secure(request)
        response.set_cookie(self._called(secure), value, path="/", secure=secure, httponly=True, samesite="strict")

    def remove(self, request: Request, response: Response) -> None:
        secure = is_secure(request)
        response.delete_cookie(self._called(secure), path="/", secure=secure, httponly=True, samesite="strict")


#: Without an end of its own: how long a session lasts is for the database to say.
SESSION = Cookie("tidemill_session")
#: So that nobody can be signed in as somebody else by a form of another site.
FORM = Cookie("tidemill_form")


def is_secure(request: Request) -> bool:
    """By TLS of ours, or of what stands in front; who lies about that only makes his own cookie stricter."""
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"


def theme(request: Request) -> str | None:
    """As the person chose it; None: as the system has it."""
    found = request.cookies.get(_THEME)
    return found if found in THEMES else None
