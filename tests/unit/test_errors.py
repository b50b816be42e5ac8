"""The tree of errors as its docstring draws it is the tree there is."""

from __future__ import annotations

import inspect
import re

from app import errors
from app.errors import BadRequest, TidemillError

BRANCH = re.compile(r"^    ((?:[│ ]   )*(?:[├└]── )?)([A-Z]\w+)( |$)")


def drawn() -> dict[str, str]:
    """Each class of the drawing, with its parent."""
    path: list[str] = []
    found: dict[str, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        if match := BRANCH.match(line):
            depth, name = len(match[1]) // 4, match[2]
            path[depth:] = [name]
            found[name] = path[depth - 1] if depth else "Exception"
    return found


def test_the_drawing_shows_every_class_under_its_parent() -> None:
    classes = {
        name: found.__bases__[0].__name__
        for name, found in inspect.getmembers(errors, inspect.isclass)
        if found.__module__ == errors.__name__
    }
    assert len(classes) > 10
    assert drawn() == classes


def test_one_except_catches_all_and_a_bad_request_is_a_value_error() -> None:
    classes = [found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, Exception)]
    assert all(issubclass(found, TidemillError) for found in classes)
    assert issubclass(BadRequest, ValueError)
