"""The floor and the roof of Tidemill: settings, database, claims, jobs; and the Celery application that runs them."""

from __future__ import annotations

from app.db import Base, transaction
from app.jobs.enqueue import enqueue, enqueue_many

__all__ = ["Base", "enqueue", "enqueue_many", "transaction"]
