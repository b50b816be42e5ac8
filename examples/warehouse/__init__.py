"""A layered warehouse: what comes from outside (raw) is staged, worked out in detail, and summed up in marts.

No task has a timetable. Each starts when the control table says that what it rests on became fresher. What it shows:

- every kind of trigger, through the words of the facade where they read well, as classes where they do not;
- increments that are processed exactly once, whatever fails: `run.transaction()` (`warehouse.steps`), proved all the
  time by `warehouse.proof`;
- pools with limits, priorities, `produces`, `min_interval`, `first_run="baseline"`, `on_lapse="run"`, a source that
  fails now and then, and a Celery task that was there before.

`tidemill up --demo` runs it. To run it by yourself, in two terminals:

    cd examples && TIDEMILL_MODULES=warehouse.tasks TIDEMILL_POLL_INTERVAL=1s tidemill up
    cd examples && python -m warehouse.load
"""
