"""Failures that are the same, and words of messages."""

from __future__ import annotations

import doctest

import pytest

from processes import filters, fingerprint
from processes.fingerprint import kind_of


def test_the_examples_are_true() -> None:
    for module in (fingerprint, filters):
        assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    "errors",
    [
        ("KeyError: 'a'", "KeyError: 'b'", 'KeyError: "c"'),
        ("order 17", "order o-998", "order 3f9c01aa-11d4-4a", "order 0x7f3A", "order 1.5", "order deadbeef-cafe"),
        ("at 12:00:01.5, no", "at 2030-07-01T12:00:00Z, no"),
        ("host db-1.shop: refused", "host db-22.shop: refused"),
        (f"{'x' * 280} '{'a' * 400}'", f"{'x' * 280} '{'b' * 400}'"),
        (f"order {'1' * 90} {'is not there ' * 40}", f"order 1 {'is not there ' * 40}"),
        ("no orders 1, 2, o-3", "no orders 7", "no orders 'a', 'b'"),
        ("at datetime(2026, 11, 20, 5, 3, 2, 100000, tzinfo=UTC)", "at datetime(2026, 11, 20, 5, 3, tzinfo=UTC)"),
        ("at 2026-11-20 05:03:02.1+00", "at 2026-11-20 05:03:02+00", "at 2026-11-20 05:03:02.123456-03:30"),
        ("by -12.50", "by 12", "by 0.1", "by -1e-05"),
        ("don't take 'a' to the shops' end", "don't take 'b' to the shops' end"),
    ],
    ids=str,
)
def test_ids_numbers_and_quotes_do_not_matter(errors: tuple[str, ...]) -> None:
    # R10
    assert len({kind_of(each) for each in errors}) == 1


@pytest.mark.parametrize(
    "errors",
    [
        ("no order 17", "no customer 17"),
        ("can't charge the shop's card", "can't charge the buyer's card"),
        ("access denied", "feed back denied"),
        ("no amount 12", "no amount None"),
    ],
    ids=str,
)
def test_words_matter(errors: tuple[str, ...]) -> None:
    assert len({kind_of(each) for each in errors}) == len(errors)
