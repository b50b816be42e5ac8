"""Values that can change in place (JSON, arrays, pickled objects): a copy to keep, and whether they differ. Pure."""

from __future__ import annotations

import copy
import uuid
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

_FIXED = frozenset({type(None), bool, int, float, str, bytes, Decimal, datetime, date, time, timedelta, uuid.UUID})
_MISSING: Any = object()


def kept(value: Any) -> Any:
    """A copy that stays as it is, whatever happens to the value. What cannot change is the same object in it."""
    if type(value) in _FIXED:
        return value
    # Also of those that tell SQLAlchemy when they change: a copy has nobody to tell.
    if isinstance(value, dict):
        return {key: each if type(each) in _FIXED else kept(each) for key, each in value.items()}
    if isinstance(value, list):
        return [each if type(each) in _FIXED else kept(each) for each in value]
    return copy.deepcopy(value)


def same(old: Any, new: Any) -> bool:
    """Whether what was kept is the same as this, once it is in the database: a tuple is a list there, but True is
    not 1."""
    if old is new:
        return True
    if isinstance(old, dict) and isinstance(new, dict):
        if len(old) != len(new):
            return False
        for key, value in old.items():
            other = new.get(key, _MISSING)
            if value is not other and not same(value, other):
                return False
        return True
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        return len(old) == len(new) and all(map(same, old, new))
    if isinstance(old, bool) is not isinstance(new, bool):
        return False
    equal = old == new
    # Vectors compare element by element.
    return bool(equal.all() if hasattr(equal, "all") else equal)
