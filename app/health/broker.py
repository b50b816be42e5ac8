"""Whether the broker answers, within a bounded time, and keeps what it is given."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLong
from urllib.parse import urlsplit

from app.health.finding import Finding, fail, ok, warn

LIMIT_SECONDS = 5.0
STEP_SECONDS = 2.0
REDIS = ("redis", "rediss", "valkey", "valkeys")
KEEPS = "noeviction"


def broker(url: str) -> list[Finding]:
    """In a thread that is left behind when it takes too long: what hangs there does not hang us."""
    answer: Future[list[Finding]] = Future()

    def ask() -> None:
        try:
            answer.set_result(_redis(url) if urlsplit(url).scheme in REDIS else _other(url))
        except Exception as error:  # noqa: BLE001 - whatever a broker's client raises is the finding
            answer.set_exception(error)

    threading.Thread(target=ask, name="tidemill-doctor", daemon=True).start()
    advice = "check TIDEMILL_BROKER_URL and the server; until it answers, work waits in the database, and none is lost"
    try:
        return answer.result(LIMIT_SECONDS)
    except TooLong:
        return [fail("broker", f"no answer within {LIMIT_SECONDS:g} s", advice)]
    except Exception as error:  # noqa: BLE001 - see above
        return [fail("broker", kind_of(error), advice)]


def kind_of(error: Exception) -> str:
    """Some clients repeat the URL, with its password, in their message: only the cause's kind is told."""
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in type(error).__name__).strip()
    return f"it does not accept us: {words}"


def _redis(url: str) -> list[Finding]:
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    # The client's own default tries a wrong password again for seconds.
    client = Redis.from_url(
        url.replace("valkey", "redis", 1),
        socket_connect_timeout=STEP_SECONDS,
        socket_timeout=STEP_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
    with client:
        memory: dict[str, object] = client.info("memory")
    policy = memory.get("maxmemory_policy")
    found = [ok("broker", f"{urlsplit(url).hostname} answers")]
    if policy == KEEPS:
        return [*found, ok("broker memory", f"maxmemory-policy is {policy}")]
    advice = f"set maxmemory-policy to {KEEPS}: under memory pressure this one drops tickets, and work starts late"
    return [*found, warn("broker memory", f"maxmemory-policy is {policy}", advice)]


def _other(url: str) -> list[Finding]:
    from kombu import Connection

    with Connection(url, connect_timeout=int(STEP_SECONDS)) as connection:
        connection.ensure_connection(max_retries=1, timeout=int(STEP_SECONDS), reraise_as_library_errors=False)
    return [ok("broker", f"{urlsplit(url).hostname} answers")]
