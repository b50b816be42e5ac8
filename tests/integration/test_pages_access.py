"""Who sees the pages, and who acts: signing in, sessions, roles, forged forms, headers, and what is open."""

from __future__ import annotations

import itertools
import logging
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app import audit, db, tokens
from app.console.pages.index import ACTS, PAGES
from app.console.web import attempts
from app.console.web.attempts import Attempts
from app.db import transaction
from app.embedded import OwnServers
from app.errors import Unavailable
from app.settings import settings
from app.tokens.sessions import ConsoleSession
from tests.kit import console, doc_pages, standing
from tests.kit.database import Databases
from tests.kit.pages import Person

#: What is in braces is a number.
PATHS = [(page.name, re.sub(r"{\w+}", "1", page.path)) for page in PAGES]
ACT_PATHS = [(act.name, re.sub(r"{\w+}", "1", act.path)) for act in ACTS]


_numbers = itertools.count()


@pytest.fixture(scope="module")
def _database(_servers: OwnServers, _databases: Databases) -> Iterator[str]:
    with standing.database(_servers, _databases) as found:
        yield found


@pytest.fixture
def url(_database: str) -> Iterator[str]:
    """A console of its own for each test: it counts tries that fail."""
    with console.serving() as found:
        yield found


@pytest.fixture
def session(url: str) -> Iterator[Session]:
    with Session(db.engine()) as found:
        yield found


def made(role: str, name: str = "") -> str:
    """Of somebody whom nobody else has signed in as."""
    return console.token(name or f"{role}-{next(_numbers)}", role)


@pytest.fixture
def person(url: str) -> Person:
    return Person(url)


def test_nothing_is_open_but_health_signing_in_and_static_files(person: Person) -> None:
    for _, path in (*PATHS, *ACT_PATHS):
        seen = person.ask("GET", path)
        assert (seen.status, seen.headers["location"].partition("?")[0]) == (303, "/sign-in"), path
        assert seen.html == ""
        live = person.ask("GET", path, headers={"X-Tidemill-Live": "1"})
        assert (live.status, live.html) == (401, "sign in again")
    for _, path in ACT_PATHS:
        assert person.ask("POST", path, {"proof": "x"}).headers["location"].startswith("/sign-in")
    assert person.ask("GET", "/healthz").status == 200
    assert person.ask("GET", "/sign-in").status == 200
    assert person.ask("GET", "/static/console.css").status == 200
    for path in ("/none", "/static", "/sign-out", "/static/"):
        assert person.ask("GET", path).status in (404, 405)


def test_signing_in_and_out(person: Person, session: Session) -> None:
    token = made("viewer")
    seen = person.sign_in(token, "/sign-in?next=%2Faudit")
    assert (seen.status, seen.path) == (200, "/audit")
    assert "viewer-" in seen.text
    assert token not in seen.html + str(person.cookies)
    kept = sa.exists().where(ConsoleSession.hash == tokens.digest(person.cookies["tidemill_session"]))
    assert session.scalar(sa.select(kept))
    out = seen.form("/sign-out").send()
    assert out.path == "/sign-in"
    assert "tidemill_session" not in person.cookies
    session.rollback()
    assert not session.scalar(sa.select(kept))


@pytest.mark.parametrize("role", ["producer", "actor"])
def test_who_is_no_viewer_sees_nothing(person: Person, role: str) -> None:
    seen = person.sign_in(made(role))
    assert seen.status == 401
    assert f"of the role {role}, which sees no pages" in seen.text
    assert "tidemill_session" not in person.cookies


@pytest.mark.parametrize("token", ["", "x", "tdm_" + "A" * 43, "tdm_" + "A" * 1_000, "<script>alert(1)</script>", "ö"])
def test_a_bad_token(person: Person, token: str) -> None:
    seen = person.sign_in(token)
    assert seen.status == 401
    assert "unknown, expired or revoked" in seen.text
    assert "<script>alert" not in seen.html


def test_where_signing_in_leads_is_ours(person: Person) -> None:
    token = made("viewer")
    for evil in (
        "//evil.example",
        "https://evil.example/",
        "/\\evil.example",
        "javascript:alert(1)",
        "\\\\evil",
        "audit",
    ):
        form = person.get("/sign-in").form("/sign-in")
        seen = person.ask("POST", "/sign-in", {**form.fields, "token": token, "next": evil})
        assert (seen.status, seen.headers["location"]) == (303, "/"), evil


def test_a_session_ends_with_its_token_by_itself_and_by_being_idle(
    url: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = Person(url), Person(url)
    one.sign_in(made("viewer", "one"))
    other.sign_in(made("viewer", "other"))
    assert one.get("/audit").path == "/audit"
    tokens.revoke(session, "one")
    session.commit()
    assert one.get("/audit").path.startswith("/sign-in")
    own = sa.update(ConsoleSession).where(ConsoleSession.token == "other")
    session.execute(own.values(seen_at=sa.func.now() - settings().console_idle + timedelta(minutes=5)))
    session.commit()
    # A page that asks by itself is not somebody who is there.
    assert other.ask("GET", "/audit", headers={"X-Tidemill-Live": "1"}).status == 200
    query = sa.select(sa.type_coerce(sa.func.now() - ConsoleSession.seen_at, sa.Interval)).where(
        ConsoleSession.token == "other"
    )
    assert session.scalars(query).one() > timedelta(hours=1)
    session.commit()
    assert other.get("/audit").status == 200
    assert session.scalars(query).one() < timedelta(hours=1)
    session.execute(own.values(seen_at=sa.func.now() - settings().console_idle))
    session.commit()
    assert other.get("/audit").path.startswith("/sign-in")
    session.execute(own.values(seen_at=sa.func.now(), expires_at=sa.func.now()))
    session.commit()
    assert other.get("/audit").path.startswith("/sign-in")


def test_a_session_is_of_a_token(session: Session) -> None:
    nobody = ConsoleSession(hash=b"x", token="nobody", expires_at=sa.func.now())
    session.add(nobody)
    with pytest.raises(IntegrityError, match="console_session_token_fkey"):
        session.flush()


def test_a_cookie_of_nobody(person: Person) -> None:
    for value in ("x", "A" * 43, "A" * 5000, "'; drop table token; --", "\u00e9"):
        person.cookies["tidemill_session"] = value
        assert person.ask("GET", "/audit").status == 303


def test_a_form_of_another_session_or_site_does_nothing(url: str) -> None:
    olga, mallory = Person(url), Person(url)
    olga.sign_in(made("operator"))
    mallory.sign_in(made("operator"))
    theirs = mallory.get("/audit").form("/sign-out").fields["proof"]
    for proof in ("", "x", theirs, olga.cookies["tidemill_session"]):
        assert olga.ask("POST", "/sign-out", {"proof": proof}).status == 403
    for _, path in ACT_PATHS:
        for proof in ("", theirs):
            assert olga.ask("POST", path, {"proof": proof}).status == 403, path
        own = olga.get("/audit").form("/sign-out").fields["proof"]
        for site in ("cross-site", "same-site"):
            seen = olga.ask("POST", path, {"proof": own}, {"Sec-Fetch-Site": site})
            assert seen.status == 403, path
    assert olga.get("/audit").status == 200


def test_signing_in_cannot_be_forged(person: Person) -> None:
    """Or somebody would work under the name of another without knowing it."""
    token = made("operator")
    assert person.ask("POST", "/sign-in", {"token": token, "proof": "x"}).status == 403
    form = person.get("/sign-in").form("/sign-in")
    person.cookies.clear()
    assert person.ask("POST", "/sign-in", {**form.fields, "token": token}).status == 403
    assert "tidemill_session" not in person.cookies


def test_a_viewer_changes_nothing(url: str) -> None:
    viewer = Person(url)
    viewer.sign_in(made("viewer"))
    own = viewer.get("/audit").form("/sign-out").fields["proof"]
    for _, path in ACT_PATHS:
        for seen in (viewer.ask("GET", path), viewer.ask("POST", path, {"proof": own})):
            assert seen.status == 403, path
            assert "who changes nothing" in seen.text


def test_a_cookie_for_tls_alone(person: Person) -> None:
    token = made("viewer")
    headers = {"X-Forwarded-Proto": "https"}
    form = person.ask("GET", "/sign-in", headers=headers)
    assert set(person.cookies) == {"__Host-tidemill_form"}
    words = {**form.form("/sign-in").fields, "token": token}
    seen = person.ask("POST", "/sign-in", words, headers)
    (cookie,) = [each.lower() for each in seen.set_cookies if "session" in each]
    for word in ("__host-tidemill_session=", "secure", "httponly", "samesite=strict", "path=/"):
        assert word in cookie
    assert person.ask("GET", "/audit", headers=headers).status == 200
    assert person.ask("GET", "/audit").status == 303


def test_headers(person: Person) -> None:
    person.sign_in(made("viewer"))
    for path in ("/", "/audit", "/none", "/sign-in"):
        seen = person.ask("GET", path)
        policy = seen.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert seen.headers["x-content-type-options"] == "nosniff"
        assert seen.headers["referrer-policy"] == "same-origin"
        assert seen.headers["cache-control"] == "no-store"
        for word in (" style=", " onclick=", "javascript:", "<style", "http://", "https://"):
            assert word not in seen.html, path
        assert seen.html.count("<script") == 1


def test_paths_lead_nowhere_else(person: Person) -> None:
    person.sign_in(made("operator"))
    for path in (
        *("/static/../__init__.py", "/static/..%2f__init__.py", "/static/%2e%2e/site.py", "/static/console.css/x"),
        *("/static/console.py", "/static//etc/passwd", "/static/%00", "/..%2f..%2fetc/passwd", "//evil.example/"),
        *("/audit/", "/audit/1", "/%61udit%00"),
    ):
        seen = person.ask("GET", path)
        assert seen.status == 404, path
        assert "import" not in seen.html


def test_huge_things_are_refused(person: Person) -> None:
    person.sign_in(made("operator"))
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert person.ask("GET", "/audit?subject=" + "a" * 9000).status == 413
    assert person.ask("GET", "/audit?subject=" + "a" * 3000).status == 413
    assert person.ask("GET", "/audit?" + "a=b&" * 300).status == 400
    assert person.ask("GET", "/audit?subject=%ff").status == 400
    assert person.ask("GET", "/audit?subject=%00").status == 400
    for path in ("/sign-in", "/sign-out", *(path for _, path in ACT_PATHS)):
        assert person.ask("POST", path, b"a" * 70_000, form).status == 413
        assert person.ask("POST", path, b"{}", {"Content-Type": "application/json"}).status == 415
        assert person.ask("POST", path, b"a=" * 300, form).status in (400, 403)


def test_errors_of_the_inside_stay_inside(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    person.sign_in(made("viewer"))

    def fails(*_: object) -> None:
        raise RuntimeError("secret of the inside")

    monkeypatch.setattr("app.console.pages.audit.transaction", fails)
    seen = person.get("/audit")
    assert seen.status == 500
    assert "secret" not in seen.html
    assert "Traceback" not in seen.html
    assert "log of the console" in seen.text


def test_a_database_that_is_away(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    person.sign_in(made("viewer"))

    def fails(*_: object) -> None:
        raise Unavailable("the database does not answer: host db.internal")

    for module in ("desk", "entry"):
        monkeypatch.setattr(f"app.console.web.{module}.transaction", fails)
    for seen in (person.get("/audit"), person.sign_in("tdm_x")):
        assert seen.status == 503
        assert "does not answer" in seen.text
        assert "db.internal" not in seen.html
        assert seen.headers["retry-after"] == "1"


def test_too_many_tries(person: Person) -> None:
    for _ in range(attempts.ADDRESS[0]):
        assert person.sign_in("x").status == 401
    good = made("viewer")
    seen = person.sign_in(good)
    assert seen.status == 429
    assert 0 < int(seen.headers["retry-after"]) <= attempts.ADDRESS[1]
    assert "tidemill_session" not in person.cookies


def test_tries_by_address_and_in_all() -> None:
    now = 0.0
    mine = Attempts(lambda: now)
    for _ in range(attempts.ADDRESS[0]):
        assert mine.wait("a") == 0
        mine.failed("a")
    assert mine.wait("a") > 0
    assert mine.wait("b") == 0
    now += attempts.ADDRESS[1]
    assert mine.wait("a") == 0
    for number in range(attempts.OVERALL[0]):
        mine.failed(f"host-{number}")
    assert mine.wait("never-seen") > 0
    now += 3600
    assert mine.wait("never-seen") == 0


def test_what_is_live_is_sent_when_it_changed(person: Person) -> None:
    person.sign_in(made("viewer"))
    first = person.ask("GET", "/audit", headers={"X-Tidemill-Live": "1"})
    assert first.status == 200
    assert "<html" not in first.html
    words = {"X-Tidemill-Live": "1", "If-None-Match": first.headers["etag"]}
    assert person.ask("GET", "/audit", headers=words).status == 304
    with transaction() as session:
        audit.record(session, "queue.pause", "mail")
    again = person.ask("GET", "/audit", headers=words)
    assert again.status == 200
    assert "queue.pause" in again.html


def test_the_log_has_the_name_and_no_secret(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    person, token = Person(url), made("viewer", "olga")
    person.sign_in(token)
    person.get(f"/audit?subject={token}")
    assert "token olga: 200" in caplog.text
    for secret in (token, *person.cookies.values()):
        assert secret not in caplog.text


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_pages_are_read_with_curl_as_the_how_to_says(url: str, tmp_path: Path) -> None:
    (typed,) = [each.text for each in doc_pages.blocks("howto/use-the-console.md") if "curl" in each.text]
    (tmp_path / "viewer.token").write_text(made("viewer") + "\n")
    typed = typed.replace("http://127.0.0.1:8765", url)
    done = subprocess.run(["sh", "-ec", typed], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert "<h1>Processes</h1>" in done.stdout
