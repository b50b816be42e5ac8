"""The benchmark: us, the peers and the floors, measured in one run on the same servers.

Promises:
- a figure is never compared with one from another run, machine or server;
- what a goal judges is a ratio; absolute figures are shown for the reader;
- every round measures all sides one after the other, never two at once, and the median of the rounds counts;
- the servers keep their promises while they are measured: `fsync` and `synchronous_commit` are on, or nothing runs;
- a run leaves nothing behind: its database, its keys in the broker and all of its processes are gone at the end.

A measure is a module `bench/measures/bNN_name.py` with `measure(context) -> list[Row]`.
"""
