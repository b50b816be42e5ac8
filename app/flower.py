"""Flower beside the console: `celery -A app flower` with a door, readable names, and the way back.

- It listens where others can reach it only with a password (`FLOWER_BASIC_AUTH`, `--basic_auth` or `--auth`). Without
  one it listens on this machine alone, where it shows and changes nothing.
- `/metrics`, which Flower leaves open, asks for the password too. `/healthcheck` stays open: it says `OK`.
- A ticket that no task gave its name to is shown as the work of its queue, or by the one task of that queue.
- Its pages have a link to the console, where `TIDEMILL_CONSOLE_URL` says where that is.

Celery's command line has imported Flower's command, and Flower has no hooks for any of this: so the class that the
command makes, and the list of handlers that it takes, are replaced before it runs.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from click import ClickException
from flower import command, urls
from flower.app import Flower as Plain
from flower.views.monitor import Metrics
from tornado.template import Loader, Template
from tornado.web import authenticated

from app import logs
from app.doorbell import GENERIC
from app.errors import SettingsError
from app.hosts import only_here
from app.registry import registry
from app.settings import settings

log = logging.getLogger(__name__)

HERE = "127.0.0.1"
_NAVBAR = "navbar.html"
#: Before this in Flower's own template comes the link to the console.
_PLACE = b'<ul class="app-nav app-nav-secondary'


def prepare() -> None:
    """Once, before the command runs."""
    command.Flower = Flower
    for at, handler in enumerate(urls.handlers):
        if isinstance(handler, tuple) and handler[1] is Metrics:
            urls.handlers[at] = (handler[0], GuardedMetrics)


class GuardedMetrics(Metrics):  # type: ignore[misc]
    @authenticated
    async def get(self) -> None:
        await super().get()


class Flower(Plain):  # type: ignore[misc]
    def __init__(self, options: Any, capp: Any, **words: Any) -> None:
        try:
            settings().resolved_broker_url()
        except SettingsError as error:
            raise ClickException(str(error)) from None
        logs.set_up_others(logging.getLogger(), "flower")
        close(options)
        if options.format_task is None:
            options.format_task = readable
        words["template_loader"] = Pages(words["template_path"], settings().console_url)
        super().__init__(options=options, capp=capp, **words)


def close(options: Any) -> None:
    """Refuses to be open to others; nowhere in particular is this machine, then."""
    if options.basic_auth or options.auth or options.unix_socket:
        return
    if not options.address:
        options.address = HERE
        log.warning("Flower listens on %s only: set FLOWER_BASIC_AUTH=user:password to open it to others", HERE)
    elif not only_here(options.address):
        raise ClickException(
            f"Flower would be open to whoever reaches {options.address}: set FLOWER_BASIC_AUTH=user:password, or leave "
            f"out --address"
        )


def readable(task: Any) -> Any:
    """A copy of what Flower knows of a message, to be changed."""
    if task.name == GENERIC and (queue := _queue_of(task.args)):
        own = [each.name for each in registry.functions.values() if each.queue == queue.removesuffix(".low")]
        task.name = own[0] if len(own) == 1 else f"work of {queue}"
    return task


def _queue_of(told: Any) -> str | None:
    """What a ticket says instead of its arguments."""
    try:
        match ast.literal_eval(told) if isinstance(told, str) else None:
            case (str(queue), str()):
                return queue
            case _:
                return None
    except (ValueError, SyntaxError):
        return None


class Pages(Loader):
    """Flower's templates; in the navigation, a link to the console."""

    def __init__(self, root: str, console_url: str | None) -> None:
        super().__init__(root)
        self._console_url = console_url

    def _create_template(self, name: str) -> Template:
        make: Callable[[str], Template] = super()._create_template
        if name != _NAVBAR or self._console_url is None:
            return make(name)
        text = Path(self.root, name).read_bytes()
        return Template(text.replace(_PLACE, _link(self._console_url) + _PLACE, 1), name=name, loader=self)


def _link(url: str) -> bytes:
    # A brace would be an expression of the template.
    shown = escape(url).replace("{", "%7B").replace("}", "%7D")
    item = f'<li class="nav-item"><a class="nav-link" href="{shown}">Tidemill console</a></li>'
    return f'<ul class="app-nav navbar-nav">{item}</ul>\n'.encode()
