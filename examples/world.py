"""The world outside of the examples, in one process: customers of the shop, and data for the warehouse."""

from __future__ import annotations

import os
import threading
import traceback

from shop import produce
from warehouse import load


def shop() -> None:
    try:
        produce.main()
    except BaseException:
        traceback.print_exc()
        # Whoever has started this process is to see that it does not do its work any more.
        os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=shop, name="shop", daemon=True).start()
    load.main()
