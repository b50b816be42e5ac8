"""The file of remote stages: what it may say, and what is refused, with the entry and the key (S18)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

from app.errors import BadRequest, SettingsError
from stages import registration
from stages.definition import Definition
from stages.registration import asked_of, declared, of_kind
from stages.remote import client
from stages.remote.configuration import read
from stages.remote.declaring import declare_all
from stages.remote.service import Tls
from stages.watched import kind_of
from tests.kit import stages_memory
from tests.kit.remote import certified
from tests.kit.remote_messages import Offer

PLAIN = 'kind = "parcel"\nname = "score"\naddresses = ["localhost:5000"]\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    certificate, key = certified()
    (tmp_path / "ca.pem").write_bytes(certificate)
    (tmp_path / "key.pem").write_bytes(key)
    (tmp_path / "token").write_text("secret\n")
    return tmp_path / "remote.toml"


@pytest.fixture
def kind() -> Iterator[None]:
    with stages_memory.nothing_declared():
        kind_of(stages_memory.parcels())
        yield
    registration.sources.clear()


def write(file: Path, *entries: str) -> Path:
    file.write_text("".join(f"[[stage]]\n{each}\n" for each in entries))
    return file


def test_what_is_left_out_has_defaults(file: Path) -> None:
    (found,) = read(write(file, PLAIN))
    assert (found.kind, found.name, found.addresses) == ("parcel", "score", ("localhost:5000",))
    assert (found.max_parallel, found.batch, found.time_limit) == (2, 100, timedelta(seconds=10))
    assert (found.max_attempts, found.asks, found.saved, found.message) == (10, True, False, None)
    assert (found.tls, found.token_file, found.watches, found.rate_limit) == (Tls(), None, None, None)


def test_everything_may_be_said(file: Path) -> None:
    text = PLAIN + (
        'watches = ["status"]\nrate_limit = "10/s"\nmax_parallel = 5\nbatch = 7\ntime_limit = "2s"\nmax_attempts = 3\n'
        'asks = false\nsaved = true\nentity = "tests.kit.remote_messages:Offer"\ntoken_file = "token"\n'
        'max_message = 100000\ntls = {ca_file = "ca.pem", cert_file = "ca.pem", key_file = "key.pem", '
        'server_name = "scoring"}'
    )
    (found,) = read(write(file, text))
    directory = file.parent
    assert found.tls == Tls(directory / "ca.pem", directory / "ca.pem", directory / "key.pem", "scoring")
    assert (found.watches, found.rate_limit, found.max_parallel, found.batch) == (("status",), "10/s", 5, 7)
    assert (found.time_limit, found.max_attempts, found.asks, found.saved) == (timedelta(seconds=2), 3, False, True)
    assert (found.message, found.token_file, found.max_message) == (Offer, directory / "token", 100_000)


@pytest.mark.parametrize(
    "address", ["scoring:443", "10.0.0.1:1", "[::1]:5000", "dns:///scoring.internal:443", "unix:/run/x", "unix:///x"]
)
def test_addresses(file: Path, address: str) -> None:
    (found,) = read(write(file, PLAIN.replace("localhost:5000", address)))
    assert found.addresses == (address,)


REFUSED = {
    ("", 'colour = "red"'): r"stage 1 \(parcel.score\): colour is no key",
    ("", "max_paralel = 1"): "max_paralel is no key: did you mean max_parallel",
    ('kind = "parcel"', ""): "kind: it is missing",
    ('"parcel"', "7"): "kind: 7 must be text",
    ('name = "score"', ""): "name: it is missing",
    ('"score"', '"Score"'): "name='Score' must be at most",
    ('"score"', '"a.b"'): "name='a.b' must be at most",
    ('"score"', '"system"'): "system is taken",
    ('"score"', '"low"'): "low is taken",
    ('addresses = ["localhost:5000"]', ""): "addresses: it is missing",
    ('["localhost:5000"]', "[]"): "addresses: .* must be a list of texts",
    ('["localhost:5000"]', '"localhost:5000"'): "addresses: .* must be a list of texts",
    ('["localhost:5000"]', '["localhost"]'): "addresses: 'localhost' is no address",
    ('["localhost:5000"]', '["http://x:1"]'): "addresses: 'http://x:1' is no address",
    ('["localhost:5000"]', '["x:99999"]'): "addresses: 'x:99999' is no address",
    ('["localhost:5000"]', '["x:1", "x:1"]'): "addresses: 'x:1' stands there twice",
    ("", 'watches = "price"'): "watches: .* must be a list of texts",
    ("", 'rate_limit = "fast"'): "rate_limit: 'fast' is no",
    ("", "rate_limit = 10"): "rate_limit=10 must be text",
    ("", "max_parallel = 0"): "max_parallel=0 must be",
    ("", "batch = 0"): "batch=0 must be a whole number",
    ("", "batch = true"): "batch=True must be a whole number",
    ("", "time_limit = 'soon'"): "time_limit: 'soon' is not a duration",
    ("", "time_limit = '10ms'"): "time_limit='10ms' must be 100ms or more",
    ("", "time_limit = '2h'"): "time_limit: .* is longer than",
    ("", "max_attempts = 0"): "max_attempts=0 must be",
    ("", "asks = 'no'"): "asks: 'no' must be true or false",
    ("", "saved = 1"): "saved: 1 must be true or false",
    ("", "entity = 'proto'"): "entity: 'proto' must be 'json', or",
    ("", "entity = 'no.such:Class'"): "entity: no.such cannot be imported: ModuleNotFoundError",
    ("", "entity = 'tests.kit.remote_messages:NOT_A_MESSAGE'"): "entity: .* is no class that protoc",
    ("", "entity = 'tests.kit.remote_messages:Nothing'"): "entity: .* is no class that protoc",
    ("", "plaintext = 'yes'"): "plaintext: 'yes' must be true or false",
    ("", "plaintext = true\ntls = {}"): "tls: it does not go with plaintext",
    ("", "tls = true"): "tls: True must be a table",
    ("", "tls = {ca = 'x'}"): "tls: ca is no key: there are ca_file",
    ("", "tls = {ca_file = 'none.pem'}"): "tls: ca_file: .*none.pem cannot be read: No such file",
    ("", "tls = {cert_file = 'ca.pem'}"): "tls: cert_file and key_file go together",
    ("", "token_file = 'none'"): "token_file: .*none cannot be read",
    ('["localhost:5000"]', '["far:1"]\nplaintext = true\ntoken_file = "token"'): "token_file: anybody could read",
    ("", "max_message = 10"): "max_message=10 must be a whole number",
}


@pytest.mark.parametrize(("change", "problem"), REFUSED.items(), ids=[str(each) for each in REFUSED.values()])
def test_what_is_wrong_is_named(file: Path, change: tuple[str, str], problem: str) -> None:
    old, new = change
    with pytest.raises(SettingsError, match=problem) as raised:
        read(write(file, PLAIN.replace(old, new) if old else PLAIN + new))
    assert str(raised.value).startswith(f"TIDEMILL_REMOTE_STAGES={file}: stage 1 (")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[stage]", "it is no TOML"),
        ("stage = 1", "stage must be a list of tables"),
        ("[stages]", "stages is no key: did you mean stage"),
    ],
)
def test_a_file_that_is_none(file: Path, text: str, problem: str) -> None:
    file.write_text(text)
    with pytest.raises(SettingsError, match=problem):
        read(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"TIDEMILL_REMOTE_STAGES=.*none\.toml: it cannot be read: No such file"):
        read(tmp_path / "none.toml")


def test_two_of_one_name_are_refused(file: Path) -> None:
    with pytest.raises(SettingsError, match=r"stage 2: there is a parcel.score before it"):
        read(write(file, PLAIN, PLAIN))


# Declared


@pytest.mark.usefixtures("kind")
def test_a_stage_and_the_entry_that_asks_it_are_declared(file: Path) -> None:
    declare_all(write(file, PLAIN + 'watches = ["weight"]'))
    made, ask = declared["parcel", "score"], declared["parcel", "score.ask"]
    assert [each.name for each in of_kind("parcel")] == ["score", "score.ask"]
    assert asked_of("parcel") == (ask,)
    assert (made.queue, made.asker, made.asks_for, made.guarded) == ("stage.parcel.score", "score.ask", None, True)
    assert (ask.queue, ask.asker, ask.asks_for, ask.guarded) == ("stage.parcel.score.ask", "score.ask", "score", False)
    assert (made.watches, ask.watches, made.state) == (None, frozenset({"grams"}), AnyMessage)
    assert made.module == ask.module == str(file)
    assert registration.sources == {str(file)}
    with pytest.raises(BadRequest, match="lives in another service"):
        made.process(None, None)


@pytest.mark.usefixtures("kind")
def test_without_asks_there_is_one_entry(file: Path) -> None:
    (made,) = declare_all(write(file, PLAIN + 'asks = false\nwatches = ["weight"]'))
    assert asked_of("parcel") == (made,)
    assert (made.watches, made.asker) == (frozenset({"grams"}), "score")


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (PLAIN.replace("parcel", "letter"), "parcel|letter.score: kind: no module .* declares it; there are: parcel"),
        (PLAIN + 'watches = ["colour"]', "watches: Parcel has no attribute colour to watch"),
    ],
)
def test_what_the_modules_do_not_have_is_refused(file: Path, text: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        declare_all(write(file, text))


@pytest.mark.usefixtures("kind")
def test_a_stage_of_a_module_has_its_name_for_itself(file: Path) -> None:
    stages_memory.declare(stages_memory.parcels(), "score")
    with pytest.raises(SettingsError, match=r"parcel.score: .*score is this stage already"):
        declare_all(write(file, PLAIN))
    declared.clear()
    declare_all(file)
    with pytest.raises(BadRequest, match=r"remote\.toml is the stage score too"):
        stages_memory.declare(stages_memory.parcels(), "score")


@pytest.mark.usefixtures("kind")
def test_a_client_is_made_once_and_not_carried_over_a_fork(file: Path) -> None:
    made: Definition = declare_all(write(file, PLAIN))[0]
    remote: Any = made.remote
    assert client.client_of(remote) is client.client_of(remote)
    client._clients.clear()
