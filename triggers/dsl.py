"""The words for triggers that tasks are written with; each returns a trigger class (T9).

Read them with "when" in front: when `dds.orders.loaded_to` has `grown`, when a `new_day` of it has come, when it is
`fresh`, when it has `reached` the present day, when it has `caught_up` with another one, when both are in the
`same_chunk`. The first two kinds rest on what the task saw last and fire once for each piece of news; the others go on
firing while they hold, so a task that uses one of them alone needs `min_interval` (T10).
"""

from __future__ import annotations

from datetime import timedelta

from app.errors import BadRequest
from triggers.chunked import ChunkDelay, ChunkDelta, ChunkRefDelay
from triggers.exact import Delay, Delta, RefDelay, distance
from triggers.verdict import Parameter


def grown(entity: str, parameter: str, *, by: timedelta | str) -> Delta:
    """At least this much has come since the last run: `grown("dds.orders", "loaded_to", by="2d")`."""
    return Delta(entity, parameter, distance("by", by, 1))


def new_chunk(entity: str, parameter: str, scale: str, *, tz: str = "UTC") -> ChunkDelta:
    """It lies in a later chunk than at the last run: `new_chunk("dds.orders", "loaded_to", "30min")`."""
    return ChunkDelta(entity, parameter, scale, tz=tz)


def new_hour(entity: str, parameter: str) -> ChunkDelta:
    """A later hour than at the last run has begun."""
    return new_chunk(entity, parameter, "hour")


def new_day(entity: str, parameter: str, *, tz: str = "UTC") -> ChunkDelta:
    """A later day, by the calendar of the zone, than at the last run has begun."""
    return new_chunk(entity, parameter, "day", tz=tz)


def new_week(entity: str, parameter: str, *, tz: str = "UTC") -> ChunkDelta:
    """A later week than at the last run has begun; weeks begin on Monday."""
    return new_chunk(entity, parameter, "week", tz=tz)


def new_month(entity: str, parameter: str, *, tz: str = "UTC") -> ChunkDelta:
    """A later month than at the last run has begun."""
    return new_chunk(entity, parameter, "month", tz=tz)


def new_quarter(entity: str, parameter: str, *, tz: str = "UTC") -> ChunkDelta:
    """A later quarter of the year than at the last run has begun."""
    return new_chunk(entity, parameter, "quarter", tz=tz)


def new_year(entity: str, parameter: str, *, tz: str = "UTC") -> ChunkDelta:
    """A later year than at the last run has begun."""
    return new_chunk(entity, parameter, "year", tz=tz)


def fresh(entity: str, parameter: str, *, within: timedelta | str) -> Delay:
    """It is at most this far behind now: `fresh("dds.orders", "loaded_to", within="2h")`. May never fire (T23)."""
    return Delay(entity, parameter, distance("within", within, 0))


def reached(entity: str, parameter: str, scale: str, *, tz: str = "UTC") -> ChunkDelay:
    """It has data of the present chunk: `reached("dds.orders", "loaded_to", "day")`, today's. May never fire (T23)."""
    return ChunkDelay(entity, parameter, scale, tz=tz)


def caught_up(entity: str, parameter: str, *, with_: Parameter, within: timedelta | str = "0s") -> RefDelay:
    """It is at most this far behind another one: `caught_up("mart.a", "built_to", with_=("dds.b", "loaded_to"))`."""
    return RefDelay(entity, parameter, *_pair(with_), distance("within", within, 0))


def same_chunk(entity: str, parameter: str, scale: str, *, with_: Parameter, tz: str = "UTC") -> ChunkRefDelay:
    """It has come to the chunk in which another one is: `same_chunk("a", "p", "day", with_=("b", "q"))`."""
    return ChunkRefDelay(entity, parameter, *_pair(with_), scale, tz=tz)


def _pair(with_: object) -> Parameter:
    match with_:
        case (str(entity), str(parameter)):
            return entity, parameter
        case _:
            raise BadRequest(f"with_={with_!r} is not a parameter: write a pair, such as ('dds.orders', 'loaded_to')")
