"""Stopping work from the outside: one timer, deadlines by name, raised in the main thread only while it is guarded."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from app.alarm import Alarm, ClaimIsLost, HandBack, OutOfTime, Stopped
from tests.kit.waiting import pause, wait_until


@pytest.fixture
def alarm() -> Iterator[Alarm]:
    """With the signal of its own; that of pytest's timeout is put back."""
    handler, (left, _) = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    found = Alarm()
    found.install()
    yield found
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, left)


def work(alarm: Alarm, seconds: float = 60.0) -> float:
    """How long it may work."""
    begun = time.monotonic()
    with alarm.guarding():
        pause(seconds)
    return time.monotonic() - begun


def at(seconds: float) -> float:
    return time.monotonic() + seconds


@pytest.mark.parametrize("error", [OutOfTime, ClaimIsLost, TimeoutError])
def test_a_deadline_stops_what_is_guarded(alarm: Alarm, error: type[BaseException]) -> None:
    alarm.set("hard", at(0.03), lambda: error("over"))
    with pytest.raises(error):
        work(alarm)


def test_what_stops_work_is_not_eaten_by_except_exception(alarm: Alarm) -> None:
    # J3
    alarm.set("lease", at(0.03), lambda: ClaimIsLost("gone"))

    def stubborn() -> None:
        try:
            work(alarm)
        except Exception:  # noqa: BLE001 - the point of the test
            pytest.fail("swallowed")

    with pytest.raises(ClaimIsLost):
        stubborn()
    assert not issubclass(Stopped, Exception)


def test_the_earliest_deadline_counts(alarm: Alarm) -> None:
    alarm.set("hard", at(60), lambda: OutOfTime("hard"))
    alarm.set("soft", at(0.03), lambda: TimeoutError("soft"))
    with pytest.raises(TimeoutError):
        work(alarm)


def test_after_the_soft_limit_comes_the_hard_one(alarm: Alarm) -> None:
    alarm.set("soft", at(0.03), lambda: TimeoutError("soft"))
    alarm.set("hard", at(0.08), lambda: OutOfTime("hard"))

    def softened() -> None:
        with alarm.guarding():
            try:
                pause(60)
            except TimeoutError:
                pause(60)

    with pytest.raises(OutOfTime):
        softened()


def test_a_deadline_that_moved_later_finds_nothing_due_and_waits_on(alarm: Alarm) -> None:
    alarm.set("lease", at(3), lambda: ClaimIsLost("gone"))
    moved = threading.Thread(target=lambda: alarm.later("lease", at(60)))
    with alarm.guarding():
        moved.start()
        pause(3.1)
    moved.join()
    alarm.later("lease", at(-1))
    with pytest.raises(ClaimIsLost):
        work(alarm)


def test_a_deadline_that_was_cleared_does_not_come_back(alarm: Alarm) -> None:
    alarm.set("lease", at(0.02), lambda: ClaimIsLost("gone"))
    alarm.clear("lease")
    alarm.later("lease", at(0.02))
    assert work(alarm, 0.06) >= 0.06


def test_outside_of_the_guard_nothing_is_raised(alarm: Alarm) -> None:
    alarm.set("hard", at(0.02), lambda: OutOfTime("hard"))
    pause(0.05)
    signal.raise_signal(signal.SIGALRM)
    with pytest.raises(OutOfTime):
        work(alarm)
    alarm.set("hard", at(0.02), lambda: OutOfTime("hard"))
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0, "and no timer is left running"


def test_another_thread_can_stop_the_work_at_once(alarm: Alarm) -> None:
    # J3: the keeper learns that the claim is lost.
    def lose() -> None:
        wait_until(lambda: alarm._guarding)
        alarm.now("lost", lambda: ClaimIsLost("another worker has it"))

    thread = threading.Thread(target=lose)
    thread.start()
    begun = time.monotonic()
    with pytest.raises(ClaimIsLost, match="another worker has it"):
        work(alarm)
    thread.join()
    assert time.monotonic() - begun < 30


def test_at_the_end_of_the_grace_work_is_handed_back(alarm: Alarm) -> None:
    # J8
    alarm.hand_back = lambda: True
    timer = threading.Timer(0.05, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM))
    timer.start()
    with pytest.raises(HandBack):
        work(alarm)
    timer.join()


def test_on_patrol_each_call_has_its_own_end(alarm: Alarm) -> None:
    # S17
    with alarm.patrol():
        for _ in range(3):
            assert alarm.call(at(60), lambda: OutOfTime("never"), lambda: "done") == "done"
        begun = time.monotonic()
        with pytest.raises(OutOfTime, match="over"):
            alarm.call(at(0.1), lambda: OutOfTime("over"), pause, 60)
        assert time.monotonic() - begun < 30
        # A longer call after a shorter one, and what runs between two calls, are let be.
        pause(0.2)
        assert alarm.call(at(60), lambda: OutOfTime("never"), lambda: pause(0.2)) is None
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_on_patrol_the_end_of_the_lease_stops_a_call_too(alarm: Alarm) -> None:
    # S12: whoever cannot keep an entity stops working on it.
    alarm.set("lease", at(0.1), lambda: ClaimIsLost("the lease ends"))
    with alarm.patrol(), pytest.raises(ClaimIsLost):
        alarm.call(at(60), lambda: OutOfTime("never"), pause, 60)


def test_nothing_begins_after_a_deadline(alarm: Alarm) -> None:
    # S12: a process that stood still has missed its alarm, and may wake up just before it calls something.
    called: list[int] = []
    for begin in (lambda: alarm.call(at(60), lambda: OutOfTime("never"), called.append, 1), lambda: work(alarm)):
        alarm.set("lease", at(-1), lambda: ClaimIsLost("the lease ended"))
        with pytest.raises(ClaimIsLost, match="the lease ended"):
            begin()
    alarm.set("lease", at(-1), lambda: ClaimIsLost("the lease ended"))
    with alarm.patrol(), pytest.raises(ClaimIsLost):
        alarm.call(at(60), lambda: OutOfTime("never"), called.append, 1)
    assert called == []


def test_on_patrol_a_worker_that_stops_hands_back(alarm: Alarm) -> None:
    # J8
    over = threading.Event()
    alarm.hand_back = over.is_set
    timer = threading.Timer(0.05, over.set)
    timer.start()
    with alarm.patrol(), pytest.raises(HandBack):
        alarm.call(at(60), lambda: OutOfTime("never"), pause, 60)
    with pytest.raises(HandBack):
        alarm.call(at(60), lambda: OutOfTime("never"), pause, 60)
    timer.join()
