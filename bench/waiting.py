"""Waiting for something to become true, cheaply, while the process that does it is alive."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.children import Service


def wait_until(true: Callable[[], bool], service: Service, what: str, *, timeout: float, every: float = 0.02) -> None:
    deadline = time.monotonic() + timeout
    while not true():
        service.check()
        if time.monotonic() > deadline:
            raise service.failed(f"did not get to: {what}, within {timeout:g} s")
        time.sleep(every)
