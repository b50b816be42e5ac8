"""`tidemill process search | errors | templates` and `tidemill recover known` on a real database."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.audit import Audit
from processes import start
from tests.kit.cli import Tidemill, one_sentence
from tests.kit.process_kiosk import HOSTILE, declare, kiosk_many, kiosk_order, work

HEAD = ["id", "type", "state", "custom", "id", "registered", "took", "left", "error"]


@pytest.fixture(autouse=True)
def _declared(session: Session, broker_url: str) -> None:
    declare()


@pytest.fixture
def two() -> tuple[int, int]:
    """Broken, of two shops."""
    first = start(kiosk_order, "x", "many", custom_id="c-1", idempotency_key="k-1", attributes={"shop": "7"})
    second = start(kiosk_order, "x", "many", attributes={"shop": "8"})
    work()
    return first, second


def found(tidemill: Tidemill, *words: str) -> list[int]:
    return [each["id"] for each in tidemill("process search --json", *words).data["processes"]]


def test_search(tidemill: Tidemill, two: tuple[int, int]) -> None:
    # R10
    first, second = two
    for words, wanted in (
        ("--state broken --type kiosk_order", [second, first]),
        ("--id c-1", [first]),
        ("--id-prefix c-", [first]),
        ("--key k-1", [first]),
        ("--attribute shop=7", [first]),
        ("--actor kiosk_pay --text TYPEERROR --since 1h", [second, first]),
        ("--error-class TypeError --broken-since 1h --begun-since 1h", [second, first]),
        ("--error-class KeyError", []),
        ("--until 1h", []),
        ("--ended-since 1h", []),
        ("--state ACTIVE --state REGISTERED", []),
        (f"--before {second}", [first]),
    ):
        assert found(tidemill, *words.split()) == wanted, words
    said = tidemill("process search --limit 1")
    assert said.out.splitlines()[0].split() == HEAD
    assert said.err == f"(1 are shown; --before {second} shows older ones)\n"
    assert tidemill("process search --limit 1 --json").data["before_id"] == second
    assert tidemill("process search --type kiosk_many").out == "there is no such process\n"


def test_templates(tidemill: Tidemill, two: tuple[int, int]) -> None:
    # R10
    said = tidemill("process search --state broken --attribute shop={shop} --since {ago} --save", "of a shop")
    assert (said.code, said.out) == (0, "template of a shop is saved; it needs --set ago=… --set shop=…\n")
    use = ("--template", "of a shop", "--set", "ago=1h", "--set")
    assert found(tidemill, *use, "shop=7") == [two[0]]
    assert found(tidemill, *use, "shop=8") == [two[1]]
    assert found(tidemill, *use, "shop=7", "--state", "finished") == []
    [listed] = tidemill("process templates --json").data["templates"]
    assert (listed["name"], listed["parameters"]) == ("of a shop", ["ago", "shop"])
    assert listed["filters"] == {"states": ["BROKEN"], "attributes": {"shop": "{shop}"}, "since": "{ago}"}
    assert "--state broken" in tidemill("process templates").out
    shown = tidemill("process templates show", "of a shop").out
    assert "tidemill process search --template 'of a shop' --set ago=… --set shop=…" in shown
    assert tidemill("process search --state finished --save", "of a shop").out == "template of a shop is replaced\n"
    said = tidemill("process templates remove", "of a shop")
    assert one_sentence(said, "Nobody can be asked here: say --yes")
    assert tidemill("process templates remove --yes", "of a shop").out == "template of a shop is removed\n"
    assert tidemill("process templates list").out.startswith("there are no templates")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("search --save x", 2, "nothing is given"),
        ("search --save x --template y --state broken", 2, "without --template and --before"),
        ("search --set a=1", 2, "--set is for the parameters of a --template"),
        ("search --template there", 1, "needs shop: give each a value, such as shop=…"),
        ("search --template there --set shop=1 --set shop=2", 2, "the parameter 'shop' is given twice"),
        ("search --template there --set shop=1 --set x=2", 1, "has no parameter 'x': it has shop"),
        ("search --template ther --set shop=1", 1, "did you mean there?"),
        ("search --since soon", 2, "'soon' is neither a time"),
        ("search --since {soon}", 1, "since: '{soon}' is neither a time"),
        ("search --since 0001-01-01T00:00+14:00", 2, "'0001-01-01T00:00+14:00' is further away than time goes"),
        ("search --since 9999999w", 2, "'9999999w' is too long ago"),
        ("errors --since 0001-01-01T00:00+14:00", 2, "'0001-01-01T00:00+14:00' is further away than time goes"),
        ("search --template ago --set when=0001-01-01T00:00+14:00", 1, "since: '0001-01-01T00:00+14:00' is further"),
        ("search --fingerprint 17", 1, "must be 16 hexadecimal digits"),
        ("search --text !", 1, "has no word to search for"),
        ("errors --actor kiosk_pai", 1, "did you mean kiosk_pa"),
        ("errors --limit 0", 2, "0 is not in the range"),
        ("templates show ther", 1, "did you mean there?"),
        ("templates remove ther --yes", 1, "did you mean there?"),
    ],
)
def test_what_makes_no_sense(tidemill: Tidemill, words: str, code: int, told: str) -> None:
    tidemill("process search --attribute shop={shop} --save there")
    tidemill("process search --since {when} --save ago")
    said = tidemill(f"process {words}")
    assert (said.code, said.out) == (code, "")
    assert one_sentence(said, told)


def test_errors_and_what_is_known_of_them(tidemill: Tidemill, session: Session, two: tuple[int, int]) -> None:
    # R10
    many = start(kiosk_many, 0, 3)
    work()
    groups = tidemill("process errors --json").data["errors"]
    assert [(each["actor"], each["type"], each["count"], each["known"]) for each in groups] == [
        ("kiosk_break", "KeyError", 3, None),
        ("kiosk_pay", "TypeError", 2, None),
    ]
    mark = groups[1]["fingerprint"]
    assert found(tidemill, "--fingerprint", mark) == [two[1], two[0]]
    assert tidemill("process errors --type kiosk_many --since 1h").out.count("Error") == 1
    assert [each["count"] for each in tidemill("process errors --actor kiosk_pay --json").data["errors"]] == [2]

    add = ("recover known add", "prices", "--error-class", "KeyError", "--text", "PRICE-", "--says", "no price")
    said = tidemill(*add, "--proposes", "restart-task", "--reason", "it's there")
    assert (said.code, said.out) == (0, "prices is known: no price, proposed: restart-task\n")
    tidemill("recover known add ours --proposes none --fingerprint", mark, "--says", "our mistake")
    said = tidemill("process errors")
    proposed = "restart 1 --from 2 --reason 'it'\"'\"'s there'".replace("1", str(many), 1)
    number = groups[0]["example"]["number"]
    assert (
        f"known: prices, no price → proposed: tidemill process {proposed}".replace("from 2", f"from {number}")
        in said.out
    )
    assert said.out.endswith(f"! {mark}: known: ours, our mistake\n")
    shown = tidemill(f"process show {many}").out
    assert f"! task 2–4: known: prices, no price → proposed: tidemill process {proposed}" in shown
    known = tidemill(f"process show {many} --json").data["known"]
    assert [(each["number"], each["name"], each["proposes"]) for each in known] == [
        (number, "prices", "restart-task") for number in (2, 3, 4)
    ]
    assert [each["name"] for each in tidemill("recover known list --json").data["known"]] == ["ours", "prices"]
    assert tidemill("recover known remove prices --yes").out == "prices is not known any more\n"
    assert "known: prices" not in tidemill("process errors").out
    actions = session.scalars(sa.select(Audit.action).order_by(Audit.id)).all()
    assert actions == ["known_error.add", "known_error.add", "known_error.remove"]

    # R9: what is proposed for all of them is a command.
    tidemill("recover known add gone --error-class KeyError --says gone --proposes restart-task")
    for_all = tidemill("process errors --type kiosk_many --json").data["errors"][0]["known"]["operation"]
    assert f"for all 3: {for_all}\n" in tidemill("process errors --type kiosk_many").out
    assert tidemill(f"{for_all.removeprefix('tidemill ')} --dry-run").out.startswith("3 items\n")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("add x --says y --proposes none", 1, "needs an actor, a class, a fingerprint or a text"),
        ("add x --says y --proposes pray --text z", 2, "'pray' is not one of"),
        ("add x --proposes none --text z", 2, "--says"),
        ("add x --says y --proposes none --actor kiosk_pai", 1, "did you mean kiosk_pa"),
        ("add x --says y --proposes none --fingerprint 1", 1, "must be 16 hexadecimal digits"),
        ("remove x --yes", 1, "there is no known error 'x'"),
        ("remove x", 2, "say --yes"),
    ],
)
def test_known_errors_that_make_no_sense(tidemill: Tidemill, words: str, code: int, told: str) -> None:
    said = tidemill(f"recover known {words}")
    assert (said.code, said.out) == (code, "")
    assert one_sentence(said, told)


def test_what_others_wrote_cannot_speak_to_the_terminal(tidemill: Tidemill) -> None:
    start(kiosk_many, 0, 1, HOSTILE)
    start(kiosk_order, HOSTILE, HOSTILE)
    work()
    said = tidemill("process errors")
    assert said.code == 0
    assert {each for each in said.out if not each.isprintable()} == {"\n"}
