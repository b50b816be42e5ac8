"""Makes stages of the file of remote stages: after the user's modules, which have the kinds, were imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage

from app.errors import BadRequest, SettingsError, Unsupported
from stages.definition import ASK, Definition
from stages.kind import Kind
from stages.registration import declared, enter, sources
from stages.remote.configuration import VARIABLE, read
from stages.remote.service import Remote
from stages.watched import Watched, kind_of, kinds, name_of

PREFIX = "remote"
#: An entry that asks has as many entities in one call as this.
ASK_BATCH = 300
#: So that a service that hangs holds one worker child of the cluster by asking, and not more.
ASK_PARALLEL = 1


class Elsewhere:
    """In the place of the user's class."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def should_process(self, _entity: Any, _state: Any) -> bool:
        """Where it is asked at all, it is asked by its own queue."""
        return True

    def process(self, _entity: Any, _state: Any) -> Any:
        raise Unsupported(f"{self._remote} lives in another service: only visits call it")

    def saved(self, _entity: Any, _state: Any) -> None:
        raise Unsupported(f"{self._remote} lives in another service: only the job of a save calls it")


def declare_all(path: Path) -> list[Definition]:
    remotes = read(path)
    sources.add(str(path.resolve()))
    return [made for remote in remotes for made in declare(remote)]


def declare(remote: Remote) -> list[Definition]:
    """The stage, and the entry that asks it if it is to be asked."""
    where = f"{VARIABLE}={remote.source}: {remote.whole_name}"
    kind = _kind(where, remote)
    try:
        watches = None if remote.watches is None else kind.store.fields(remote.watches)
    except BadRequest as error:
        raise SettingsError(f"{where}: watches: {error}") from None
    before = declared.get((kind.name, remote.name))
    if before is not None and (before.remote is None or before.remote.source != remote.source):
        raise SettingsError(f"{where}: {before.task} is this stage already: give one of them another name")
    made = _definition(
        remote,
        kind,
        remote.name,
        watches=None if remote.asks else watches,
        asked=not remote.asks,
        rate_limit=remote.rate_limit,
        max_parallel=remote.max_parallel,
        batch=remote.batch,
        state=AnyMessage,
        saved=Elsewhere(remote).saved if remote.saved else None,
    )
    if not remote.asks:
        return [made]
    limits: dict[str, Any] = {"rate_limit": None, "max_parallel": ASK_PARALLEL, "batch": ASK_BATCH, "state": None}
    return [made, _definition(remote, kind, f"{remote.name}{ASK}", watches=watches, asked=True, **limits)]


def _definition(remote: Remote, kind: Kind, name: str, **more: Any) -> Definition:
    made = Definition(
        kind=kind,
        name=name,
        task=f"{PREFIX}.{kind.name}.{name}",
        stage=Elsewhere(remote),
        time_limit=remote.time_limit,
        max_attempts=remote.max_attempts,
        remote=remote,
        **more,
    )
    enter(made, f"a change of {kind.name} starts it; by hand: stages.queue.offer(entity, '{kind.name}.{name}')")
    return made


def _kind(where: str, remote: Remote) -> Kind:
    found = kinds.get(remote.kind) or _watched(remote.kind)
    if found is None:
        there = ", ".join(sorted(kinds)) or "none"
        raise SettingsError(f"{where}: kind: no module of TIDEMILL_MODULES declares it; there are: {there}")
    return found


def _watched(name: str) -> Kind | None:
    """A class may be watched, and no local stage have named it yet."""
    classes = list(Watched.__subclasses__())
    for each in classes:
        classes += each.__subclasses__()
        if getattr(each, "__table__", None) is not None and name_of(each) == name:
            try:
                return kind_of(each)
            except BadRequest:
                continue
    return None
