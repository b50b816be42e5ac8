"""The measures: one module each, `bNN_name.py`, found by its name.

`measure(context) -> list[Row]` takes all sides, ours, the peers' and the floors', and says what is compared with what.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module

from bench.context import Context
from bench.rows import Row

Measure = Callable[[Context], list[Row]]


def found() -> dict[str, str]:
    """Names as in the list of goals, and the modules: `{"B2": "b02_backlog", …}`, in order."""
    modules = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {f"B{int(name[1:3])}": name for name in modules}


def load(module: str) -> Measure:
    measure: Measure = import_module(f"{__name__}.{module}").measure
    return measure
