"""The user's modules, imported as services import them."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from click import ClickException

from app.errors import SettingsError
from app.jobs import schedules
from app.settings import settings


def application() -> Any:
    """The Celery application with all modules of TIDEMILL_MODULES."""
    # Here, because it reads the settings, and takes a third of a second.
    from app.celery import app

    try:
        app.loader.import_default_modules()
    except ClickException as error:
        raise SettingsError(error.message) from None
    except (Exception, SystemExit) as error:
        names = ",".join(settings().modules)
        raise SettingsError(
            f"TIDEMILL_MODULES={names!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    # What was declared is written when a service, or whoever else registers it, says so.
    schedules.loading(False)
    app.finalize()
    return app


def make_known() -> list[str]:
    """Tells the database what the modules declare; what there is to say of it."""
    from app.registration import write

    return write(application())


def user_queues() -> list[str]:
    from app.passes import CONTROL
    from app.registration import queues_of

    return [name for name in queues_of(application()) if name != CONTROL]


def refuse_names_of_ours() -> None:
    """A module of the user that hides one of ours would make every service fail, each with a riddle."""
    here, ours = Path.cwd(), Path(str(files("app"))).parent
    if here == ours:
        return
    for name in ("app", "processes", "recovery", "stages", "tidemill", "triggers"):
        if (here / f"{name}.py").exists() or (here / name / "__init__.py").exists():
            raise SettingsError(f"{here / name} hides Tidemill's own module {name!r}: rename it, or work elsewhere")
