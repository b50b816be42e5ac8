"""Whether this worker is stopping: said by its main process, known to every child through a page that they share.

Celery's own warm shutdown stops taking messages and waits for its children; a child that serves a ticket must hear
of it too, or it would go on claiming. And so it must of a schema that is older than this release: nothing is taken
until somebody has migrated.
"""

from __future__ import annotations

import mmap


class Stopping:
    """Made before the children are forked."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, 2)

    def is_set(self) -> bool:
        return self._page[0] != 0

    def set(self) -> None:
        self._page[0] = max(1, self._page[0])

    def is_over(self) -> bool:
        """The grace is over: what still runs is to be handed back."""
        return self._page[0] == 2

    def set_over(self) -> None:
        self._page[0] = 2

    def hold(self, held: bool) -> None:  # noqa: FBT001
        """Until it is known that the schema is that of this release, or a later one."""
        self._page[1] = held

    def is_held(self) -> bool:
        return self._page[1] != 0

    def clear(self) -> None:
        self._page[0] = 0


stopping = Stopping()
