"""Hypothesis strategies for what goes in and out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

#: Text that can be sent: no half of a surrogate pair.
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
scalars: st.SearchStrategy[Any] = st.none() | st.booleans() | numbers | text
json_values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=12
)
json_args = st.lists(json_values, max_size=4)
json_kwargs = st.dictionaries(text, json_values, max_size=4)

priorities = st.integers(-32767, 32767)
durations = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=400))
moments = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)).map(lambda naive: naive.replace(tzinfo=UTC))  # noqa: DTZ001
