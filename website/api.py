"""The page of the Python names: what the facade offers, as its source writes it. Pure, but for reading that source."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from types import ModuleType
from typing import Any

import tidemill
from website import stub
from website.promised import BESIDE, GIVEN, GROUPS, MEMBERS, NAMES

RULE = re.compile(r"\(([TSPRJ]\d+)\)")
HEAD = """# Python

Everything that is promised to programs. It is all importable from `tidemill`, unless another module is named. Errors
have [a page of their own](errors.md).

<!-- Made by `python -m website` from the code. -->
"""


def page() -> str:
    groups: dict[str, list[str]] = {title: [] for title in GROUPS}
    for name in tidemill.__all__:
        found = getattr(tidemill, name)
        groups[_group(found)] += _module(name, found) if inspect.ismodule(found) else [_entry(name, found)]
    for name, place in GIVEN.items():
        found = getattr(importlib.import_module(place), name)
        groups[_group(found)].append(_entry(name, found))
    parts = [HEAD]
    for title, entries in groups.items():
        parts += [f"## {title}\n", *sorted(entries, key=_heading)]
    for module, names in BESIDE.items():
        parts += [f"## {module}\n", *_module("", importlib.import_module(module), names)]
    return "\n".join(parts)


def _heading(entry: str) -> str:
    return entry.splitlines()[0].casefold()


def _group(found: Any) -> str:
    place = found.__name__ if inspect.ismodule(found) else found.__module__
    return next(
        title
        for title, places in GROUPS.items()
        if any(place == each or place.startswith(f"{each}.") for each in places)
    )


def _module(prefix: str, module: ModuleType, names: tuple[str, ...] = ()) -> list[str]:
    """An entry for each of its names that the facade does not have itself."""
    entries = []
    for name in names or NAMES.get(module.__name__) or module.__all__:
        found = getattr(module, name)
        if prefix and getattr(tidemill, name, None) is found:
            continue
        full = f"{prefix}.{name}" if prefix else name
        entries += _module(full, found) if inspect.ismodule(found) else [_entry(full, found)]
    return entries


def _entry(name: str, found: Any) -> str:
    if hasattr(found, "DESCRIPTOR"):  # made by protoc: it has no source to read
        message = found.DESCRIPTOR
        fields = ", ".join(f"`{field.name}`" for field in message.fields)
        return f"### {name}\n\nThe protobuf message `{message.full_name}`, with {fields}.\n"
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(found))).body
    if isinstance(node, ast.ClassDef):
        only = MEMBERS.get(name) or MEMBERS.get(f"{found.__module__}.{name}")
        code = "\n".join(stub.class_(node, only))
    elif isinstance(node, ast.FunctionDef):
        code = stub.function(node)
    else:
        raise TypeError(f"{name} is no class and no function: it cannot be shown")
    return f"### {name}\n\n```python\n{code}\n```\n\n{documented(found)}".rstrip() + "\n"


def documented(found: Any) -> str:
    """What it says of itself: not what a class above it says, nor what `dataclass` makes up."""
    text = vars(found).get("__doc__") if inspect.isclass(found) else found.__doc__
    if not text or text.startswith(f"{found.__name__}("):
        return ""
    return RULE.sub(lambda rule: f"([{rule[1]}](rules.md#{rule[1].lower()}))", inspect.cleandoc(text))
