"""The soak: everything that runs in production, at half of what it can do, for an hour; does anything grow?

`make soak MINUTES=60`. Two schedulers, beat, a worker, one of control and the console, driven on all four paths: jobs,
changed entities, processes, data that became fresher. What is kept (the log, events, processes that ended) is kept for
a twelfth of the time, so that its tables reach their height while the soak lasts. In the second half nothing may grow:
memory of each service, connections, what lies in the broker, tables and indexes, dead rows, what waits and how long.
"""
