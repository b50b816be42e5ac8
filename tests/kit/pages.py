"""A person at the console: keeps cookies, follows links and redirects, fills in forms. No browser is needed.

`person = Person(url); person.sign_in(token); page = person.get("/audit"); page.form("pause").send(reason="…")`.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

from app.console.web import memory
from tests.kit import console

SECONDS = 60.0
FORM = "application/x-www-form-urlencoded"
Fields = Mapping[str, str] | Iterable[tuple[str, str]]


@contextmanager
def signed_in(role: str = "operator", name: str = "olga", **options: Any) -> Iterator[Person]:
    """Somebody at a console that is served from here."""
    memory.forget_all()
    with console.serving(**options) as url:
        person = Person(url)
        person.sign_in(console.token(name, role))
        yield person
    memory.forget_all()


@dataclass
class Person:
    url: str
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **headers: str) -> Seen:
        return self._follow(self.ask("GET", path, headers=headers))

    def post(self, path: str, fields: Fields, **headers: str) -> Seen:
        return self._follow(self.ask("POST", path, fields, headers))

    def _follow(self, seen: Seen) -> Seen:
        for _ in range(5):
            if seen.status != 303:
                return seen
            seen = self.ask("GET", urljoin(seen.path, seen.headers["location"]))
        raise AssertionError(f"it goes round in circles: {seen.headers['location']}")

    def ask(
        self, method: str, path: str, fields: Fields | bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Seen:
        """Without following; underscores in names of headers are dashes."""
        words = {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        words = {"Accept": "text/html", **words}
        if self.cookies:
            words.setdefault("Cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items()))
        body = None
        if fields is not None:
            body = fields if isinstance(fields, bytes) else urlencode(_pairs(fields)).encode()
            words.setdefault("Content-Type", FORM)
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=SECONDS)
        try:
            connection.request(method, path, body, words)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        cookies = answer.headers.get_all("set-cookie") or []
        self._keep(cookies)
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Seen(self, answer.status, path, found, text, cookies)

    def _keep(self, given: list[str]) -> None:
        for line in given:
            for name, morsel in SimpleCookie(line).items():
                if morsel["max-age"] == "0":
                    self.cookies.pop(name, None)
                else:
                    self.cookies[name] = morsel.value

    def sign_in(self, token: str, path: str = "/sign-in") -> Seen:
        return self.get(path).form("/sign-in").send(token=token)


def _pairs(fields: Fields) -> list[tuple[str, str]]:
    return list(fields.items()) if isinstance(fields, Mapping) else list(fields)


@dataclass(frozen=True)
class Form:
    page: Seen
    action: str
    method: str
    fields: Mapping[str, str]

    def send(self, **fields: str) -> Seen:
        both = {**self.fields, **fields}
        if self.method == "get":
            return self.page.person.get(f"{self.action.partition('?')[0]}?{urlencode(both)}")
        return self.page.person.post(self.action, both)


@dataclass(frozen=True)
class Seen:
    person: Person
    status: int
    path: str
    headers: Mapping[str, str]
    html: str
    set_cookies: Sequence[str] = ()

    @property
    def forms(self) -> list[Form]:
        reader = _Reader()
        reader.feed(self.html)
        return [Form(self, urljoin(self.path, action), method, fields) for action, method, fields in reader.forms]

    def form(self, action: str) -> Form:
        """The first whose action has this in it."""
        return next(each for each in self.forms if action in each.action)

    @property
    def links(self) -> list[str]:
        reader = _Reader()
        reader.feed(self.html)
        return reader.links

    @property
    def text(self) -> str:
        """What can be read, with single blanks."""
        reader = _Reader()
        reader.feed(self.html)
        return " ".join(" ".join(reader.words).split())


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[tuple[str, str, dict[str, str]]] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self._select: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        match tag:
            case "form":
                self.forms.append((found.get("action", ""), found.get("method", "get"), {}))
            case "a" if "href" in found:
                self.links.append(found["href"])
            case "input" | "textarea" | "select" if "name" in found and self.forms:
                self._field(tag, found)
            case "option" if self._select and ("selected" in found or self._select not in self.forms[-1][2]):
                self.forms[-1][2][self._select] = found.get("value", "")

    def _field(self, tag: str, found: dict[str, str]) -> None:
        if tag == "select":
            self._select = found["name"]
        elif found.get("type") != "checkbox" or "checked" in found:
            self.forms[-1][2][found["name"]] = found.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self._select = None

    def handle_data(self, data: str) -> None:
        self.words.append(data)
