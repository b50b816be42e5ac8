"""The words for triggers (T9)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.errors import BadRequest
from triggers import dsl
from triggers.trigger import ChunkDelay, ChunkDelta, ChunkRefDelay, Delay, Delta, RefDelay, Trigger

A, B = ("dds.orders", "loaded_to"), ("mart.orders", "built_to")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        # T9
        (dsl.grown(*A, by="2d"), Delta(*A, "2d")),
        (dsl.grown(*A, by=timedelta(days=2)), Delta(*A, "2d")),
        (dsl.new_chunk(*A, "30min"), ChunkDelta(*A, "30min")),
        (dsl.new_hour(*A), ChunkDelta(*A, "hour")),
        (dsl.new_day(*A, tz="Europe/Moscow"), ChunkDelta(*A, "day", tz="Europe/Moscow")),
        (dsl.new_week(*A), ChunkDelta(*A, "week")),
        (dsl.new_month(*A), ChunkDelta(*A, "month")),
        (dsl.new_quarter(*A), ChunkDelta(*A, "quarter")),
        (dsl.new_year(*A), ChunkDelta(*A, "year")),
        (dsl.fresh(*A, within="2h"), Delay(*A, "2h")),
        (dsl.reached(*A, "day", tz="Asia/Tokyo"), ChunkDelay(*A, "day", tz="Asia/Tokyo")),
        (dsl.caught_up(*B, with_=A), RefDelay(*B, *A, "0s")),
        (dsl.caught_up(*B, with_=A, within="2h"), RefDelay(*B, *A, "2h")),
        (dsl.same_chunk(*B, "day", with_=A), ChunkRefDelay(*B, *A, "day")),
    ],
)
def test_each_word_returns_the_class_that_it_stands_for(said: Trigger, meant: Trigger) -> None:
    assert said == meant


@pytest.mark.parametrize("value", ["soon", "-1d", 5, None])
def test_a_wrong_distance_is_told_by_the_word_that_was_written(value: str) -> None:
    with pytest.raises(BadRequest, match=r"^by="):
        dsl.grown(*A, by=value)
    with pytest.raises(BadRequest, match=r"^within="):
        dsl.fresh(*A, within=value)
    with pytest.raises(BadRequest, match=r"^within="):
        dsl.caught_up(*B, with_=A, within=value)


@pytest.mark.parametrize("with_", ["dds.orders", "ab", ("a",), ("a", "b", "c"), None, ("a", 5)])
def test_the_other_parameter_is_a_pair(with_: object) -> None:
    with pytest.raises(BadRequest, match=r"with_=.* is not a parameter: write a pair"):
        dsl.caught_up(*A, with_=with_)  # type: ignore[arg-type]
