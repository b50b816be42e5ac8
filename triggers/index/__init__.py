"""Which tasks a change of one parameter affects, and whether they fire now (T18).

What it promises:

- Pure: it is told of tasks, values, last seen and the time, and reads nothing else.
- `truth` of a task is what its trigger's `check` would say with the same values, after every call.
- Moving a parameter costs as much as there are leaves that turn true or false by it, however many tasks there are;
  beside them it looks once at each group of leaves that are measured alike (`triggers.index.groups`), and at no group
  of which the parameter is only the reference. A value that comes, goes or moves back looks at these too.
- Time alone makes nothing true. What it makes false is known beforehand: `next_timer`.
- Nothing rests on edges alone: what is put in late, or again, has the same truth as what was there all the time.
"""

from __future__ import annotations

from triggers.index.index import Index

__all__ = ["Index"]
