"""What `@actor` and `@decider` say."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import BadRequest
from processes.definition import Retry, checked_name, fail_names, optional_span, unknown

RETRIES = st.builds(
    Retry,
    max_attempts=st.integers(1, 1000),
    delay=st.floats(0, 1e6) | st.timedeltas(timedelta(0), timedelta(days=100)),
    factor=st.floats(1, 100) | st.integers(1, 100),
    most=st.floats(0, 1e6) | st.timedeltas(timedelta(0), timedelta(days=100)),
)


@settings(deadline=None)
@given(RETRIES)
def test_waits_grow_up_to_the_most_and_end_with_the_attempts(retry: Retry) -> None:
    # P9
    waits = [retry.after(failures) for failures in range(1, retry.max_attempts)]
    assert all(wait is not None and timedelta(0) <= wait <= retry.most for wait in waits)  # type: ignore[operator]
    assert all(one <= two for one, two in pairwise(waits))  # type: ignore[operator]
    assert retry.after(retry.max_attempts) is None
    assert retry.after(retry.max_attempts + 5) is None
    if waits:
        assert waits[0] == min(retry.delay, retry.most)


@settings(deadline=None)
@given(RETRIES)
def test_a_retry_is_stored_and_read_again(retry: Retry) -> None:
    again = Retry.of(retry.words())
    assert again == retry
    assert again.words() == retry.words()


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"max_attempts": 1001},
        {"max_attempts": 2.5},
        {"max_attempts": True},
        {"delay": "-1s"},
        {"delay": "soon"},
        {"most": -1},
        {"factor": 0.5},
        {"factor": float("nan")},
        {"factor": float("inf")},
        {"factor": 101},
        {"factor": True},
        {"factor": "2"},
    ],
)
def test_a_retry_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=next(iter(wrong))):
        Retry(**wrong)


class _Own(KeyError):
    pass


def test_errors_are_accepted_by_their_names() -> None:
    # P9
    assert fail_names("x", [ValueError, "Gone", _Own, ValueError]) == ("ValueError", "Gone", "_Own")
    assert fail_names("x", (each for each in [OSError])) == ("OSError",)
    assert fail_names("x", ValueError) == ("ValueError",)
    wrong: list[Any] = [5, [int], [""], ["a\nb"], ["x" * 101], [None], [ValueError()]]
    for each in wrong:
        with pytest.raises(BadRequest, match="list classes of exceptions"):
            fail_names("x", each)


@pytest.mark.parametrize("name", ["", " ", "a,b", "a\nb", "x" * 101, 5, None])
def test_a_name_that_cannot_be_that_of_a_queue_is_refused(name: Any) -> None:
    with pytest.raises(BadRequest, match="name="):
        checked_name(name)


def test_a_span_may_be_off() -> None:
    # P6
    assert optional_span("x", "task_timeout", None) is None
    assert optional_span("x", "task_timeout", 0) is None
    assert optional_span("x", "task_timeout", "5min") == timedelta(minutes=5)
    with pytest.raises(BadRequest, match="task_timeout"):
        optional_span("x", "task_timeout", "10ms", "100ms")


def test_a_name_that_nothing_has_is_told_with_one_that_is_near() -> None:
    assert unknown("actor", "chrage", ["charge", "ship"]) == "there is no actor 'chrage': did you mean charge?"
    assert unknown("actor", "zzzzzz", ["ship", "charge"]).endswith("there is charge, ship")
    assert unknown("actor", "zzzzzz", map(str, range(10))).endswith("8, 9")
    assert unknown("actor", "zzzzzz", map(str, range(12))).endswith("6, 7, … and 2 more")
    assert unknown("actor", "zzzzzz", []).endswith("there is none")
