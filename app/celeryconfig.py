"""How Celery is set up here. Every setting that is not Celery's default has its reason."""

from __future__ import annotations

import sys
from pathlib import Path

from app.doorbell import transport_options
from app.errors import SettingsError
from app.passes import CONTROL, beat_entries
from app.settings import settings

try:
    _known = settings()
except SettingsError as error:
    # Some commands of Celery read this before they tell anybody that they begin (`app.celery`): a sentence here too.
    if Path(sys.argv[0]).name == "celery" or sys.argv[0].endswith("celery/__main__.py"):
        sys.exit(f"Error: {error}")
    raise
# A program that only enqueues reads this file too, and must not fail for want of a broker: services check it.
broker_url = _known.known_broker_url()
# A broker that went silent must be noticed: without time limits a worker stays deaf for good, and says nothing.
broker_transport_options = transport_options(broker_url or "")
# The same for RabbitMQ; Celery's two minutes are a long time to be deaf.
broker_heartbeat = 10
# Whatever the broker does, the worker waits for it: the work is in Postgres.
broker_connection_max_retries = None
broker_connection_retry_on_startup = True
broker_connection_timeout = 3

# Pickle runs code from the broker; tickets and control messages are plain JSON.
accept_content = ["json"]
task_serializer = "json"
result_serializer = "json"
event_serializer = "json"

# Results are in the job log; a result backend would be a second place to lose them.
result_backend = None
task_ignore_result = True

# The last one needs the kinds that the modules declare.
imports = ("app.control", *_known.modules, "app.remote_stages")
# Where a task that names no queue goes.
task_default_queue = "jobs"
# A ticket that is held back by a busy worker could wake an idle one.
worker_prefetch_multiplier = 1
# Tickets are acknowledged when taken: they are worth nothing, and a crash must not hand one out in a circle.
task_acks_late = False
# Claims are kept by their lease, not by the broker: losing the broker is no reason to end work.
worker_cancel_long_running_tasks_on_connection_loss = False
# Each costs 0.6 ms a message; Flower turns events on when it is there.
worker_send_task_events = False
# Logs of user code stay as the user wrote them.
worker_redirect_stdouts = False
timezone = "UTC"

# No state on disk: entries are intervals, and several beats may run in one directory.
beat_scheduler = "celery.beat:Scheduler"
beat_schedule = beat_entries()
# Passes run every second; the default of 300 s would be the shortest interval that beat sees.
beat_max_loop_interval = 1
task_routes = {"tidemill.control.*": {"queue": CONTROL}}
