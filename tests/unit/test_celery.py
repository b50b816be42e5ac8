"""How the application behaves as Celery's beat."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from celery import signals

import app.celery  # noqa: F401 - connects


class Beat:
    stopped = 0

    def stop(self) -> None:
        self.stopped += 1


@pytest.fixture(params=[signal.SIGTERM, signal.SIGINT])
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    yield request.param
    for each, handler in before.items():
        signal.signal(each, handler)


def test_beat_is_stopped_between_two_messages_and_at_the_second_signal_at_once(number: int) -> None:
    beat = Beat()
    signals.beat_init.send(sender=beat)
    signal.raise_signal(number)
    assert beat.stopped == 1
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
