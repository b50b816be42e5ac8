"""Approves purchases, from outside: python approve.py http://127.0.0.1:8765 < approve.token

It needs `tidemill/outside.py` and nothing else of Tidemill.
"""

from __future__ import annotations

import logging
import signal
import sys
from typing import Any

from tidemill.outside import Fail, Worker

MOST = 1000


def approve(order_id: str, amount: int) -> dict[str, Any]:
    if amount > MOST:
        raise Fail("Declined", f"{amount} is more than {MOST}")
    return {"order": order_id, "by": "approve.py"}


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    worker = Worker(sys.argv[1], sys.stdin.readline().strip(), "approve")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop())
    worker.run(approve)
    print("ended", flush=True)


if __name__ == "__main__":
    main()
