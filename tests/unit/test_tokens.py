"""What each role may do, and how scopes match."""

from __future__ import annotations

import pytest

from app.tokens import ROLES, Action, Holder

ALLOWED = {
    "viewer": {Action.READ, Action.LOOK},
    "operator": set(Action),
    "producer": {Action.READ, Action.ADVANCE, Action.ENQUEUE},
    "actor": {Action.STATE, Action.ACT},
}


def test_there_is_an_answer_for_every_role() -> None:
    assert ALLOWED.keys() == set(ROLES)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("action", Action)
def test_what_a_role_may(role: str, action: Action) -> None:
    assert Holder("x", role).may(action, "anything") == (action in ALLOWED[role])


def test_an_unknown_role_may_nothing() -> None:
    assert not any(Holder("x", "king").may(action, "a") for action in Action)


@pytest.mark.parametrize(
    ("scope", "name", "covers"),
    [
        (("offer.score",), "offer.score", True),
        (("offer.score",), "offer.scores", False),
        (("offer.score",), "offer.scor", False),
        (("offer.score",), "Offer.score", False),
        (("offer.*",), "offer.score", True),
        (("offer.*",), "offer.", True),
        (("offer.*",), "offer", False),
        (("offer.*",), "offers.score", False),
        (("a", "b*"), "bc", True),
        (("a", "b*"), "ab", False),
        (("*",), "", True),
        (("a.c",), "abc", False),
        ((), "a", False),
        (None, "a", True),
    ],
)
def test_scopes(scope: tuple[str, ...] | None, name: str, covers: bool) -> None:  # noqa: FBT001
    assert Holder("x", "actor", scope).may(Action.STATE, name) == covers
