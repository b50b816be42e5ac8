"""`app.settings`: every value is checked when it is read, and the message names it."""

from __future__ import annotations

import logging
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from app.errors import SettingsError
from app.settings import PREFIX, Settings, file_names

WRONG_BROKERS = [
    "redis://h:port/0",
    "redis://h:65536/0",
    "redis://:pass/word@h",
    "amqp://a;amqp://b:x",
    "redis://h/shop",
]
WRONG = {
    "TIDEMILL_DATABASE_URL": ["", "mysql://localhost/x", "localhost:5432/db", "postgresql:/localhost/x"],
    "TIDEMILL_BROKER_URL": ["", "   ", "http://x", "localhost:6379", *WRONG_BROKERS],
    "TIDEMILL_EVENTS_URL": ["", "   ", "http://x", "localhost:6379", *WRONG_BROKERS],
    "TIDEMILL_REMOTE_STAGES": ["", "  "],
    "TIDEMILL_HOME": ["", "  "],
    "TIDEMILL_SHARDS": ["0", "-1", "4097", "1.5", "many", ""],
    "TIDEMILL_POLL_INTERVAL": ["", "50ms", "10", "ten seconds", "-1s", "nan s", "9" * 30 + "d"],
    "TIDEMILL_SWEEP_INTERVAL": ["", "99ms", "1 fortnight"],
    "TIDEMILL_LOG_LEVEL": ["", "LOUD", "TRACE"],
    "TIDEMILL_LOG_FORMAT": ["", "xml", "json lines"],
    "TIDEMILL_TRACING": ["", "maybe", "otlp"],
    "TIDEMILL_LEASE": ["", "999ms", "0s", "60", "2d", "9999999w", "9" * 30 + "w"],
    "TIDEMILL_POOL_SIZE": ["0", "1001", "x"],
    "TIDEMILL_GRACE": ["", "-1s", "soon"],
    "TIDEMILL_REPAIR_RATE": ["", "0", "1000001", "10/s"],
    "TIDEMILL_LOG_RETENTION": ["", "500ms", "forever"],
    "TIDEMILL_EVENT_RETENTION": ["", "500ms", "forever"],
    "TIDEMILL_EVENTS_REPLAY": ["", "-1s", "forever"],
    "TIDEMILL_BEAT_FILE": ["", " "],
    "TIDEMILL_RPC_LISTEN": ["", " "],
    "TIDEMILL_RPC_TLS_CERT": ["", " "],
    "TIDEMILL_RPC_TLS_KEY": ["", " "],
    "TIDEMILL_RPC_CLIENT_CA": ["", " "],
    "TIDEMILL_RPC_PLAINTEXT": ["", "maybe", "2"],
    "TIDEMILL_RPC_MAX_MESSAGE": ["", "1023", "268435457", "4MiB"],
    "TIDEMILL_RPC_THREADS": ["", "0", "1001"],
    "TIDEMILL_RPC_MAX_CALLS": ["", "0", "100001"],
    "TIDEMILL_RPC_DEADLINE": ["", "99ms", "61s", "10"],
    "TIDEMILL_RPC_REFLECTION": ["", "maybe"],
    "TIDEMILL_CONSOLE_HOST": ["", " "],
    "TIDEMILL_CONSOLE_PORT": ["", "-1", "65536", "http"],
    "TIDEMILL_CONSOLE_TLS_CERT": ["", " "],
    "TIDEMILL_CONSOLE_TLS_KEY": ["", " "],
    "TIDEMILL_CONSOLE_PLAINTEXT": ["", "maybe", "2"],
    "TIDEMILL_DEMO": ["", "maybe", "2"],
    "TIDEMILL_CONSOLE_THREADS": ["", "0", "1001"],
    "TIDEMILL_CONSOLE_MAX_CALLS": ["", "0", "100001"],
    "TIDEMILL_CONSOLE_IDLE": ["", "999ms", "8"],
    "TIDEMILL_CONSOLE_SESSION": ["", "999ms", "forever"],
    "TIDEMILL_CONSOLE_URL": ["", "console", "ftp://x", "javascript:alert(1)", "https://", "http://me:secret@host"],
    "TIDEMILL_FLOWER_URL": ["", "flower:5555", "http://me:secret@host"],
}
#: Fields that any text is a value for.
ANYTHING = {"TIDEMILL_MODULES"}


def test_every_setting_has_wrong_values_here() -> None:
    assert {PREFIX + field.name.upper() for field in fields(Settings)} == WRONG.keys() | ANYTHING


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_wrong_value_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name) as refused:
        Settings.read({name: value})
    assert len(str(refused.value)) > len(name) + 5, "it says what is wrong, too"


@pytest.mark.parametrize("name", sorted({*WRONG, *ANYTHING}))
def test_what_is_not_utf_8_is_refused_by_name(name: str) -> None:
    """As the environment gives octets that are none."""
    with pytest.raises(SettingsError, match=f"^{name}: it is not UTF-8$"):
        Settings.read({name: "redis://h\udcff"})


@pytest.mark.parametrize(
    "url",
    ["redis://h", "redis://:p%2F@h:6379/0", "amqp://a:1//shop;amqp://b:2//shop", "redis+socket:///run/redis", "sqs://"],
)
def test_urls_of_brokers_that_are_right(url: str) -> None:
    read = Settings.read({"TIDEMILL_BROKER_URL": url, "TIDEMILL_EVENTS_URL": url})
    assert (read.broker_url, read.events_url) == (url, url)


def test_without_any_variable_the_defaults_hold() -> None:
    settings = Settings.read({})
    assert settings == Settings()
    assert (settings.shards, settings.lease, settings.pool_size) == (16, timedelta(seconds=60), 5)
    assert settings.database_url is None
    assert settings.broker_url is None


def test_right_values_are_read() -> None:
    settings = Settings.read(
        {
            "TIDEMILL_DATABASE_URL": "postgres://u:p@h/db",
            "TIDEMILL_MODULES": " shop.tasks, ,mail.tasks,",
            "TIDEMILL_HOME": "/var/lib/tidemill",
            "TIDEMILL_LOG_LEVEL": "debug",
            "TIDEMILL_LEASE": "1.5min",
            "TIDEMILL_GRACE": "0s",
        }
    )
    assert settings.database_url == "postgresql+psycopg2://u:p@h/db"
    assert settings.modules == ("shop.tasks", "mail.tasks")
    assert settings.home == Path("/var/lib/tidemill")
    assert settings.log_level == "DEBUG"
    assert settings.lease == timedelta(seconds=90)
    assert settings.grace == timedelta(0)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg2"])
def test_every_usual_scheme_of_postgres_is_understood(scheme: str) -> None:
    assert Settings.read({"TIDEMILL_DATABASE_URL": f"{scheme}://h/d"}).database_url == "postgresql+psycopg2://h/d"


def test_passwords_are_not_shown() -> None:
    schemes = {"DATABASE": "postgresql", "BROKER": "redis", "EVENTS": "amqp"}
    urls = {f"TIDEMILL_{name}_URL": f"{scheme}://u:s3cret@h/0" for name, scheme in schemes.items()}
    assert "s3cret" not in repr(Settings.read(urls))


def test_a_wrong_url_is_not_repeated_in_the_message() -> None:
    with pytest.raises(SettingsError) as refused:
        Settings.read({"TIDEMILL_DATABASE_URL": "mysql://u:s3cret@h/db"})
    assert "s3cret" not in str(refused.value)


def test_a_url_may_be_in_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "url"
    file.write_text("redis://:s3cret@h/0\n")
    settings = Settings.read({"TIDEMILL_BROKER_URL_FILE": str(file)})
    assert settings.broker_url == "redis://:s3cret@h/0"
    assert caplog.text == ""


def test_a_file_of_a_url_that_cannot_be_used_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "url"
    with pytest.raises(SettingsError, match=r"TIDEMILL_BROKER_URL_FILE: '.*' cannot be read: No such file"):
        Settings.read({"TIDEMILL_BROKER_URL_FILE": str(file)})
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match=r"TIDEMILL_BROKER_URL_FILE: '.*' cannot be read: it is not text"):
        Settings.read({"TIDEMILL_BROKER_URL_FILE": str(file)})
    file.write_text("http://u:s3cret@h")
    with pytest.raises(SettingsError, match="TIDEMILL_BROKER_URL: it must begin") as refused:
        Settings.read({"TIDEMILL_BROKER_URL_FILE": str(file)})
    assert "s3cret" not in str(refused.value)
    both = {"TIDEMILL_BROKER_URL": "redis://h", "TIDEMILL_BROKER_URL_FILE": str(file)}
    with pytest.raises(SettingsError, match="TIDEMILL_BROKER_URL and TIDEMILL_BROKER_URL_FILE are both set"):
        Settings.read(both)


def test_only_secrets_come_from_files(caplog: pytest.LogCaptureFixture) -> None:
    assert set(file_names()) == {f"TIDEMILL_{name}_URL_FILE" for name in ("DATABASE", "BROKER", "EVENTS")}
    Settings.read({"TIDEMILL_LEASE_FILE": "/nowhere"})
    assert "TIDEMILL_LEASE_FILE is not a setting" in caplog.text


def test_an_unknown_variable_is_warned_about_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        settings = Settings.read({"TIDEMILL_LEESE": "1s", "OTHER_THING": "x"})
    assert settings == Settings()
    assert "TIDEMILL_LEESE is not a setting" in caplog.text
    assert "OTHER_THING" not in caplog.text


def test_no_url_and_no_embedded_servers_says_what_to_do(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "none")
    with pytest.raises(SettingsError, match=r"TIDEMILL_DATABASE_URL is not set.*tidemill up"):
        settings.resolved_database_url()
    with pytest.raises(SettingsError, match="TIDEMILL_BROKER_URL is not set"):
        settings.resolved_broker_url()
    assert settings.known_broker_url() is None
