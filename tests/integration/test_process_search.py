"""Processes searched for: by everything that is known of them, by page, and by templates that were saved (R10)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import BadRequest, NotFound, TooLarge
from processes import ProcessState, finding, lookup, search, show, start, templates
from processes.filters import Filters
from processes.model import BROKEN_TASK, PROCESS
from tests.kit.process_kiosk import declare, kiosk_many, kiosk_order, kiosk_value, work

NUL = "a\x00b"
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def _declared(session: Session, broker_url: str) -> None:
    declare()


def ids(**filters: Any) -> list[int]:
    return [each.id for each in search(**filters)]


@pytest.fixture
def some() -> dict[str, int]:
    found: dict[str, int] = {
        "good": start(kiosk_order, "o-1", custom_id="c-1", attributes={"shop": "7", "size": {"w": 1}}),
        "broken": start(kiosk_order, "x", "many", custom_id="c-1", attributes={"shop": 7}, idempotency_key="k-1"),
        "waiting": start(kiosk_order, "late", custom_id="c%1"),
        "printing": start(kiosk_value, 1, True),
    }
    work()
    return found | {"new": start(kiosk_many, 1)}


FINDS: list[tuple[dict[str, Any], str]] = [
    ({}, "new printing waiting broken good"),
    ({"states": ["BROKEN"]}, "broken"),
    ({"states": [ProcessState.REGISTERED, "FINISHED"]}, "new good"),
    ({"name": "kiosk_order"}, "waiting broken good"),
    ({"name": "kiosk_many", "states": ["BROKEN"]}, ""),
    ({"actor": "kiosk_pay"}, "broken"),
    ({"actor": "kiosk_pack"}, "waiting"),
    ({"actor": "actor.kiosk_print"}, "printing"),
    ({"actor": "kiosk_mail"}, ""),
    ({"custom_id": "c-1"}, "broken good"),
    ({"custom_id": "c-2"}, ""),
    ({"attributes": {"shop": "7"}}, "broken good"),
    ({"attributes": {"shop": 7}}, "broken"),
    ({"attributes": {"size": {"w": 1}}}, "good"),
    ({"attributes": {"shop": "7", "size": '{"w": 1}'}}, "good"),
    ({"attributes": {"shop": "\\u0000"}}, ""),
    ({"custom_id_prefix": "c"}, "waiting broken good"),
    ({"custom_id_prefix": "c%"}, "waiting"),
    ({"custom_id_prefix": "C"}, ""),
    ({"custom_id_prefix": "c\\"}, ""),
    ({"idempotency_key": "k-1"}, "broken"),
    ({"idempotency_key": "k-1", "name": "kiosk_value"}, ""),
    ({"error_class": "TypeError"}, "broken"),
    ({"error_class": "Type"}, ""),
    ({"error_class": "TypeError", "actor": "kiosk_pay"}, "broken"),
    ({"error_class": "TypeError", "actor": "kiosk_pack"}, ""),
    ({"text": "typeERROR instances"}, "broken"),
    ({"text": "typeERR"}, ""),
    ({"text": "kiosk_pay: '<'"}, "broken"),
    ({"text": "instances", "actor": "kiosk_pay"}, "broken"),
    ({"text": "instances", "actor": "kiosk_pack"}, ""),
    ({"text": "instances", "error_class": "KeyError"}, ""),
    ({"begun_since": datetime(2020, 1, 1, tzinfo=UTC)}, "printing waiting broken good"),
    ({"begun_until": datetime(2020, 1, 1, tzinfo=UTC)}, ""),
    ({"ended_since": datetime(2020, 1, 1, tzinfo=UTC)}, "good"),
    ({"ended_since": datetime(2020, 1, 1, tzinfo=UTC), "name": "kiosk_value"}, ""),
    ({"ended_until": datetime(2020, 1, 1, tzinfo=UTC)}, ""),
    ({"broken_since": datetime(2020, 1, 1, tzinfo=UTC)}, "broken"),
    ({"broken_until": datetime(2020, 1, 1, tzinfo=UTC)}, ""),
    ({"limit": 2}, "new printing"),
]


@pytest.mark.parametrize("newest", [2_000, 1], ids=["near", "far"])
def test_search(some: dict[str, int], monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests, newest: int) -> None:
    # R10: among the newest, and by index.
    monkeypatch.setattr(finding, "NEWEST", newest)
    for filters, names in FINDS:
        with subtests.test(str(filters)):
            assert ids(**filters) == [some[name] for name in names.split()]


def test_search_by_page_and_by_time(some: dict[str, int]) -> None:
    moment = show(some["waiting"]).registered_at
    assert ids(since=moment) == [some[name] for name in ("new", "printing", "waiting")]
    assert ids(until=moment) == [some[name] for name in ("broken", "good")]
    assert ids(before_id=some["broken"]) == [some["good"]]


def test_search_finds_the_error_of_a_second_broken_task() -> None:
    process_id = start(kiosk_many, 0, 3)
    work()
    assert [ids(text=f"price-{each}") for each in range(4)] == [[process_id]] * 3 + [[]]
    assert ids(text="price-0", broken_since=datetime(2020, 1, 1, tzinfo=UTC)) == [process_id]


def test_search_by_fingerprint(session: Session) -> None:
    # Of the same failure with another id; and not of what looks alike.
    first, second = start(kiosk_many, 0, 1), start(kiosk_many, 0, 2, "prize")
    other = start(kiosk_order, "x", "many")
    work()
    prints = {row.process_id: row.fingerprint for row in session.execute(sa.select(BROKEN_TASK))}
    assert ids(fingerprint=prints[first]) == [second, first]
    assert ids(fingerprint=prints[other]) == [other]
    assert ids(fingerprint="0" * 16) == []


def test_words_in_the_error_of_a_process_itself(session: Session) -> None:
    process_id = start(kiosk_value, 1)
    session.execute(sa.update(PROCESS).values(error="aborted: the customer, o-17/b, said no"))
    session.commit()
    assert ids(text="O-17 customer") == ids(text="17/b") == [process_id]
    assert ids(text="17-customer") == []
    assert ids(text="said yes") == []


NONSENSE: list[tuple[dict[str, Any], str]] = [
    ({"states": ["BUSY"]}, "'BUSY' is no state: a process is REGISTERED, "),
    ({"name": "kiosk_ordr"}, "there is no type of processes 'kiosk_ordr': did you mean kiosk_order?"),
    ({"name": NUL}, "there is no type of processes 'a\\\\x00b'"),
    ({"actor": "kiosk_pa"}, "there is no actor 'kiosk_pa': did you mean kiosk_pa"),
    ({"actor": NUL}, "there is no actor"),
    ({"actor": "x" * 100_000}, "there is no actor '"),
    ({"custom_id": NUL}, "without NUL"),
    ({"custom_id": "\ud800"}, "without NUL"),
    ({"error_class": NUL}, "without NUL"),
    ({"text": NUL}, "without NUL"),
    ({"text": "'-!"}, "has no word to search for"),
    ({"text": "x" * 501}, "more than 500"),
    ({"fingerprint": "17"}, "must be 16 hexadecimal digits"),
    ({"attributes": {str(each): 1 for each in range(21)}}, "more than 20"),
    ({"attributes": [1]}, "must be a dict"),
    ({"before_id": "x"}, "must be the id of a process"),
    ({"name": 7}, "name=7 must be a name"),
    ({"parameters": {"shop": 7}}, "belong to a template"),
    ({"template": "none"}, "there is no template 'none'"),
    ({"attributes": {NUL: "x"}}, "without NUL"),
    ({"attributes": {"x": NUL}}, "without NUL"),
    ({"since": datetime(2030, 1, 1)}, "with a time zone"),  # noqa: DTZ001
    ({"limit": 0}, "from 1 to"),
    ({"limit": True}, "from 1 to"),
]


def test_search_for_nonsense(subtests: pytest.Subtests) -> None:
    for filters, told in NONSENSE:
        with (
            subtests.test(f"{filters!s:.100}"),
            pytest.raises(BadRequest, match=told.replace("?", "[?]")) as caught,
        ):
            search(**filters)
        assert len(str(caught.value)) < 400


def test_a_type_that_nobody_declares_any_more_is_found_by_its_processes(session: Session) -> None:
    process_id = start(kiosk_value, 1)
    session.execute(sa.update(PROCESS).values(name="of_old"))
    session.commit()
    assert ids(name="of_old") == [process_id]
    assert lookup.decider(session, "actor.kiosk_value") == "kiosk_value"


# Templates


def test_a_template_is_a_search_with_parameters(session: Session, some: dict[str, int]) -> None:
    # R10
    words = {"states": ["BROKEN"], "attributes": {"shop": "{shop}"}, "since": "{how_long}"}
    assert templates.save(session, "of-shop", words) is False
    session.commit()
    given = {"shop": 7, "how_long": "1h"}
    assert ids(template="of-shop", parameters=given) == [some["broken"]]
    assert ids(template="of-shop", parameters=given | {"shop": 8}) == []
    assert ids(template="of-shop", parameters=given, states=["FINISHED"]) == [some["good"]], "in place of what it says"
    assert ids(template="of-shop", parameters=given, custom_id="c-2") == []
    assert ids(template="of-shop", parameters=given | {"how_long": datetime.now(UTC) + HOUR}) == []
    [found] = templates.listed(session)
    assert (found.name, found.parameters, found.filters) == ("of-shop", ["how_long", "shop"], words)
    assert templates.save(session, "of-shop", {"states": ["FINISHED"]}) is True
    session.commit()
    assert ids(template="of-shop") == [some["good"]]
    templates.remove(session, "of-shop")
    assert templates.listed(session) == []


def test_a_span_of_a_template_counts_from_its_use(session: Session, some: dict[str, int]) -> None:
    templates.save(session, "lately", {"since": "1h"})
    first = templates.filters(session, "lately", {}).since
    assert first is not None
    assert datetime.now(UTC) - first >= HOUR
    assert (templates.filters(session, "lately", {}).since or first) > first


def test_what_a_template_cannot_be_filled_with(session: Session) -> None:
    templates.save(session, "of-shop", {"attributes": {"shop": "{shop}"}, "until": "{until}", "text": "{{x}} {shop}"})
    for parameters, told in (
        ({}, "the template 'of-shop' needs shop, until: give each a value, such as shop=…"),
        ({"shop": 1, "until": "1h", "x": 2}, "the template 'of-shop' has no parameter 'x': it has shop, until"),
        ({"shop": 1, "until": "soon"}, "until: 'soon' is neither a time such as"),
        ({"shop": NUL, "until": "1h"}, "without NUL"),
    ):
        with pytest.raises(BadRequest, match=told):
            templates.filters(session, "of-shop", parameters)
    assert templates.filters(session, "of-shop", {"shop": "{until}", "until": "1h"}).text == "{x} {until}"
    with pytest.raises(NotFound, match="did you mean of-shop"):
        templates.remove(session, "of-shp")


@pytest.mark.parametrize(
    ("name", "words", "told"),
    [
        ("a\nb", {"name": "x"}, "name="),
        ("x" * 101, {"name": "x"}, "name is 101 characters long"),
        ("x", {"color": "red"}, "'color' is nothing that processes are searched by"),
        ("x", {"before_id": "17"}, "'before_id' is nothing"),
        ("x", {"since": "soon", "name": "{name}"}, "since: 'soon' is neither"),
        ("x", {"states": ["BUSY"]}, "'BUSY' is no state"),
        ("x", {"text": "x" * 17_000}, "more than"),
    ],
    ids=str,
)
def test_what_is_no_template(session: Session, name: str, words: dict[str, Any], told: str) -> None:
    with pytest.raises(BadRequest, match=told) as caught:
        templates.save(session, name, words)
    assert len(str(caught.value)) < 400


def test_there_are_so_many_templates(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "MOST", 1)
    for _ in range(2):
        templates.save(session, "a", {"name": "x"})
    with pytest.raises(TooLarge, match="there are 1 templates already"):
        templates.save(session, "b", {"name": "x"})


def test_all_that_match_whatever_the_page(session: Session, some: dict[str, int]) -> None:
    found: Sequence[int] = session.scalars(
        finding.matching(session, Filters(name="kiosk_order", before_id=some["good"]))
    ).all()
    assert set(found) == {some[name] for name in ("waiting", "broken", "good")}
