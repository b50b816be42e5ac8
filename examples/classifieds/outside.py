"""What the site asks others: to fetch a photo, and whether a video is still there.

`Outside` is those others: a small HTTP server that takes its time, and sometimes has none.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from dataclasses import dataclass, field
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.parse import parse_qs, quote, urlsplit
from urllib.request import urlopen

from classifieds.catalogue import ANGLES

TIMEOUT = 3.0
#: A video whose address has this in it is gone.
GONE = "gone"


def address() -> str:
    return os.environ.get("CLASSIFIEDS_OUTSIDE", "127.0.0.1:8425")


class Busy(Exception):
    """The service has no time now."""


def fetch_photo(url: str) -> dict[str, str]:
    """Has a photo stored, and says where, and from which angle it was taken. The same photo gives the same answer."""
    return _ask("photo", url)


def is_there(video: str) -> bool:
    return bool(_ask("video", video)["there"])


def _ask(what: str, url: str) -> dict[str, str]:
    try:
        with urlopen(f"http://{address()}/{what}?url={quote(url, safe='')}", timeout=TIMEOUT) as answer:
            found: dict[str, str] = json.load(answer)
            return found
    except HTTPError as error:
        raise Busy(f"the service for a {what} says {error.code} {error.reason}") from None
    except OSError as error:
        raise Busy(f"the service for a {what} does not answer: {error}") from None


@dataclass
class Outside:
    """`slow`: at most so many seconds a photo. `fails`: how many of the calls."""

    slow: float = 0.2
    fails: float = 0.08
    photos: int = 0
    refused: int = 0
    at_once: int = 0
    most_at_once: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def serve(self) -> ThreadingHTTPServer:
        """In a thread; `shutdown()` and `server_close()` of what is returned end it."""
        outside = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                url = parse_qs(parts.query)["url"][0]
                answer = outside.photo(url) if parts.path == "/photo" else {"there": GONE not in url}
                if answer is None:
                    self.send_error(503, "come back later")
                    return
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *_: object) -> None:
                pass

        host, _, port = address().partition(":")
        server = ThreadingHTTPServer((host, int(port)), Handler)
        threading.Thread(target=server.serve_forever, name="outside", daemon=True).start()
        return server

    def photo(self, url: str) -> dict[str, str] | None:
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(random.uniform(0.1, 1) * self.slow)  # noqa: S311
        refuses = random.random() < self.fails  # noqa: S311
        with self._lock:
            self.at_once -= 1
            self.refused += refuses
            self.photos += not refuses
        name = md5(url.encode(), usedforsecurity=False).hexdigest()
        return None if refuses else {"stored": f"store/{name}.jpg", "angle": ANGLES[int(name, 16) % len(ANGLES)]}
