"""Reactive tasks as a file declares them, without declaring them here: to be tried in a simulation."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from app.errors import BadRequest
from app.registry import registry
from triggers import pools
from triggers.definition import Definition
from triggers.registration import declared


@dataclass(frozen=True)
class Draft:
    """What a file declares, by name."""

    tasks: dict[str, Definition]
    pools: dict[str, pools.Pool]


def read(path: Path) -> Draft:
    """Runs the file as a module of the name that it has from the working directory."""
    name = _module_name(path)
    with _put_back():
        declared.clear()
        pools.declared.clear()
        _run(name, path)
        return Draft(dict(declared), dict(pools.declared))


def _module_name(path: Path) -> str:
    full, here = path.resolve(), Path.cwd().resolve()
    parts = full.relative_to(here).with_suffix("").parts if full.is_relative_to(here) else (full.stem,)
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _run(name: str, path: Path) -> None:
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadRequest(f"{path} is no Python module: name a file that ends in .py")
    module = module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise BadRequest(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        if before is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = before


@contextmanager
def _put_back() -> Iterator[None]:
    kept: list[tuple[dict[str, Any], dict[str, Any]]]
    kept = [(each, dict(each)) for each in (declared, pools.declared, registry.functions)]
    # What is only tried must not become a Celery task of this process.
    listeners, registry._listeners = registry._listeners, []
    try:
        yield
    finally:
        registry._listeners = listeners
        for mapping, before in kept:
            mapping.clear()
            mapping.update(before)
