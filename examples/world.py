"""The world outside of the examples, in one process: customers of the shop, and data for the warehouse."""

from __future__ import annotations

import os
import threading
import traceback

from shop import produce
from warehouse import load, models


def customers() -> None:
    try:
        produce.main()
    except Exception:  # noqa: BLE001 - whatever it was, the process must be seen to end
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    # Those of both, before two threads would make them.
    models.create_tables()
    threading.Thread(target=customers, name="customers", daemon=True).start()
    load.main()
