"""`@stage`: a class that may change the entities of a kind."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar, cast

from app.checks import check_limits, check_plain, checked_count, checked_span, importable_name
from app.errors import BadRequest
from app.registry import Function, registry
from stages.definition import RESERVED, Definition
from stages.events import hook_of
from stages.forms import State, form_of
from stages.kind import Kind, checked_name, checked_names
from stages.watched import kind_of

C = TypeVar("C", bound=type)

#: By the names of kind and stage, those of all modules that were imported.
declared: dict[tuple[str, str], Definition] = {}
#: Files that were read, beside the modules: what one does not name any more is gone.
sources: set[str] = set()
METHODS = ("should_process", "process", "saved")
BATCHES, ATTEMPTS = range(1, 1001), range(1, 1001)
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def stage(
    entity: type | Kind,
    *,
    name: str | None = None,
    watches: Iterable[str] | None = None,
    rate_limit: str | None = None,
    max_parallel: int | None = None,
    batch: int = 100,
    time_limit: str | float | timedelta = "30s",
    max_attempts: int = 10,
    state: type[State] | None = None,
) -> Callable[[C], C]:
    """Declares a stage of the entities of a watched class. The class stays what it is; one instance is made of it.

    `name`: unless given, that of the class in snake_case. `watches`: the attributes whose change it is asked about;
    without it, any. `rate_limit`, `max_parallel`: of calls of `process`, for the whole cluster. At most `batch`
    entities are loaded and saved at once. `time_limit`: of one visit. After `max_attempts` a visit is parked.
    `state`: the class of what the stage keeps beside each entity: a protobuf message, a pydantic model, or `Any`.
    """
    kind = kind_of(entity)

    def declare(cls: C) -> C:
        path = _path(cls)
        check_limits(path, max_parallel, rate_limit)
        own = checked_name(path, "name", _WORDS.sub("_", cls.__name__).lower() if name is None else name)
        made = Definition(
            kind=kind,
            name=own,
            task=f"{cls.__module__}.{own}",
            stage=_instance(path, cls),
            watches=_watched_fields(path, kind, watches),
            rate_limit=rate_limit,
            max_parallel=max_parallel,
            batch=checked_count(path, "batch", batch, BATCHES),
            time_limit=checked_span(path, "time_limit", time_limit, "1s"),
            max_attempts=checked_count(path, "max_attempts", max_attempts, ATTEMPTS),
            state=_checked_state(path, state),
        )
        if hasattr(cls, "saved"):
            made = replace(made, saved=made.stage.saved)
        _refuse_taken(path, made)
        declared[kind.name, own] = made
        if made.saved is not None:
            registry.add_hook(hook_of(made))
        started_by = f"a change of {kind.name} starts it; by hand: stages.queue.offer(entity, {cls.__name__})"
        limit = made.time_limit.total_seconds()
        registry.add_function(Function(made.task, made.process, made.queue, limit, started_by))
        return cls

    return declare


def enter(made: Definition, started_by: str) -> None:
    """One that no class declares."""
    declared[made.kind.name, made.name] = made
    if made.saved is not None:
        registry.add_hook(hook_of(made))
    limit = made.time_limit.total_seconds()
    registry.add_function(Function(made.task, made.process, made.queue, limit, started_by))


def asked_of(kind: str) -> tuple[Definition, ...]:
    """Those that are asked after a change."""
    return tuple(each for each in of_kind(kind) if each.asked)


def of_kind(kind: str) -> tuple[Definition, ...]:
    """In the order of their names."""
    return tuple(declared[key] for key in sorted(declared) if key[0] == kind)


def _path(cls: Any) -> str:
    if not isinstance(cls, type):
        raise BadRequest(f"{cls!r:.100} is not a class: @stage(…) stands above one with should_process and process")
    return importable_name(cls, "stages")


def _instance(path: str, cls: type) -> Any:
    for method in METHODS[:2]:
        if not callable(getattr(cls, method, None)):
            raise BadRequest(f"{path} has no {method}: write def {method}(self, entity, state)")
    try:
        inspect.signature(cls).bind()
    except TypeError as error:
        raise BadRequest(f"{path}() cannot be made: {error}: a stage is made without arguments") from None
    found = cls()
    for method in METHODS if hasattr(cls, "saved") else METHODS[:2]:
        _check_method(f"{path}.{method}", getattr(found, method))
    return found


def _check_method(whose: str, method: Callable[..., Any]) -> None:
    check_plain(whose, method)
    try:
        inspect.signature(method).bind(None, None)
    except TypeError as error:
        raise BadRequest(f"{whose} is called with the entity and the state: {error}") from None


def _watched_fields(path: str, kind: Kind, watches: Any) -> frozenset[str] | None:
    if watches is None:
        return None
    try:
        return kind.store.fields(checked_names("watches", watches))
    except BadRequest as error:
        raise BadRequest(f"{path}: {error}") from None


def _checked_state(path: str, state: Any) -> type[State] | None:
    if state is None or form_of(state) is not None:
        return cast(type[State] | None, state)
    raise BadRequest(
        f"{path}: state={state!r:.100} must be a class that protoc has made of a message, a class of a pydantic model, "
        "or None"
    )


def _refuse_taken(path: str, made: Definition) -> None:
    """But for the same class, of a module that was imported anew."""
    if made.name in RESERVED:
        raise BadRequest(f"{path}: the name {made.name} is taken: {RESERVED[made.name]}")
    before = declared.get((made.kind.name, made.name))
    if before is not None and before.remote is not None:
        raise BadRequest(f"{path}: {before.remote} is the stage {made.name} too: give one of them another name")
    if before is not None and (other := _path(type(before.stage))) != path:
        raise BadRequest(
            f"{path} and {other} are both the stage {made.name} of {made.kind.name}: give one another name='…'"
        )
    there = registry.functions.get(made.task)
    if there is not None and there.queue != made.queue:
        raise BadRequest(f"{path}: there is a task {made.task} already: give the stage another name='…'")
