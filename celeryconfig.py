"""How Celery is set up: `app/celeryconfig.py`, which is read by that name. A module of this one, wherever a program
starts, is the user's own."""

from app.celeryconfig import *  # noqa: F403
