"""Imported after the user's modules, which declare the kinds: the stages that live in other services (S18)."""

from __future__ import annotations

from click import ClickException

from app.errors import SettingsError
from app.settings import settings
from stages.remote.client import warm_up
from stages.remote.declaring import declare_all

if (path := settings().remote_stages) is not None:
    try:
        if declare_all(path):
            warm_up()
    except SettingsError as error:
        # One sentence instead of a traceback, whatever command of Celery imports this.
        raise ClickException(str(error)) from None
