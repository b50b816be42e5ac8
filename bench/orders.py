"""A user's program that starts processes; run as a process of its own, like `bench.producer`."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from bench.flows import chain
from tidemill import start, transaction


def backlog(count: int) -> dict[str, Any]:
    """All of them in one transaction, so that they appear at once."""
    with transaction() as session:
        for number in range(count):
            start(chain, number, session=session)
        handed_over = time.time()
    time.sleep(0.2)  # the doorbell rings from a thread of this process, after the commit
    return {"committed": handed_over}


if __name__ == "__main__":
    print(json.dumps({"backlog": backlog}[sys.argv[1]](**json.loads(sys.argv[2]))))
