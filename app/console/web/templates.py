"""The templates of pages, and how a page becomes text: whole, as its living part, or as a question for a dialog."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from importlib.metadata import version
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from app.console.web import statics
from app.console.web.navigation import NAVIGATION, Entry
from app.console.web.words import FILTERS
from app.settings import settings

#: What the browser writes anew by itself makes no page another one.
_TIMES = re.compile(r"(<time [^>]*>)[^<]*")


class Layout(StrEnum):
    WHOLE = "layout.html"
    #: The block `live` alone.
    LIVE = "live.html"
    #: The block `main` alone.
    DIALOG = "dialog.html"
    #: Without navigation: nobody is signed in.
    ALONE = "alone.html"


class Templates:
    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = paths
        self._environment = Environment(
            loader=PackageLoader("app.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters.update(FILTERS)
        self._environment.globals.update(
            url=self.url, has=self.has, static=statics.address, navigation=self.navigation, version=version("tidemill")
        )
        self._environment.globals["flower"] = settings().flower_url

    def has(self, name: str) -> bool:
        return name in self._paths

    def url(self, name: str, /, **words: Any) -> str:
        """The address of a page or an act; what is not in its path stands behind the question mark."""
        path = self._paths[name]
        numbers = {word: int(words[word]) for word in re.findall(r"{(\w+)}", path)}
        rest = [(word, str(each)) for word, value in words.items() if word not in numbers for each in _each(value)]
        return path.format(**numbers) + (f"?{urlencode(rest)}" if rest else "")

    def navigation(self) -> list[Entry]:
        """Of pages that there are."""
        return [each for each in NAVIGATION if self.has(each.page)]

    def render(self, template: str, layout: Layout, context: Mapping[str, Any]) -> str:
        return self._environment.get_template(template).render(**context, layout=layout.value, whole=layout)


def _each(value: Any) -> Iterable[Any]:
    if isinstance(value, list | tuple):
        return value
    return () if value is None else (value,)


def without_times(text: str) -> str:
    return _TIMES.sub(r"\1", text)
