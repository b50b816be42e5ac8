"""The world outside of the examples, in one process: customers of the shop, data for the warehouse, people who write
offers, with the service that fetches their photos, and people who order what is fulfilled step by step."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable

from classifieds import models as classifieds
from classifieds import users
from orders import customers
from orders import models as orders
from shop import produce
from warehouse import load, models


def create_tables() -> None:
    """Those of all, before several threads would make them."""
    models.create_tables()
    classifieds.create_tables()
    orders.create_tables()


def beside(run: Callable[[], None]) -> None:
    def until_it_fails() -> None:
        try:
            run()
        except Exception:  # noqa: BLE001 - whatever it was, the process must be seen to end
            traceback.print_exc()
            os._exit(1)

    threading.Thread(target=until_it_fails, name=run.__module__, daemon=True).start()


if __name__ == "__main__":
    create_tables()
    beside(produce.main)
    beside(users.main)
    beside(customers.main)
    load.main()
