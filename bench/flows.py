"""Processes of ten steps, one after the other: what a user of the product would write, and nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill import actor, decider

if TYPE_CHECKING:
    from tidemill import Flow, Promise

STEPS = 10


@actor
def step(number: int) -> int:
    return number + 1


@decider
def chain(flow: Flow, number: int) -> Promise[int]:
    """Eleven decisions: this one, and the steps."""
    promise = flow.call(step, number)
    for _ in range(STEPS - 1):
        promise = flow.call(step, promise)
    return promise
