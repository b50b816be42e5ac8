"""`python -m remote_python`: serves until it is asked to end; says its address as soon as it can be called."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from threading import Event

from remote_python.serving import Serving, Tls

GRACE_SECONDS = 10


def main() -> None:
    parser = argparse.ArgumentParser(prog="remote_python", description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:8431", metavar="HOST:PORT", help="port 0: any that is free")
    parser.add_argument("--token-file", type=Path, required=True, help="the token that callers must send")
    parser.add_argument("--tls-certificate", type=Path, help="without it and its key, nothing is encrypted")
    parser.add_argument("--tls-key", type=Path)
    parser.add_argument("--tls-clients", type=Path, help="callers must have a certificate of this authority")
    parser.add_argument("--most-bytes", type=int, default=64 * 1024 * 1024, help="of one message")
    options = parser.parse_args()
    token = options.token_file.read_text().strip()
    if not token:
        parser.error(f"{options.token_file} is empty: write a token into it")
    if (options.tls_certificate is None) is not (options.tls_key is None) or (
        options.tls_clients is not None and options.tls_key is None
    ):
        parser.error("--tls-certificate and --tls-key belong together, and --tls-clients needs both")
    try:
        serving = Serving(options.listen, token, _tls(options), options.most_bytes)
    except RuntimeError as error:
        sys.exit(f"{options.listen} cannot be listened on: {error}")
    ended = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    serving.start()
    print(f"listening on {serving.address}", flush=True)
    ended.wait()
    serving.stop(GRACE_SECONDS)
    print("ended", flush=True)


def _tls(options: argparse.Namespace) -> Tls | None:
    if options.tls_key is None:
        return None
    clients = None if options.tls_clients is None else options.tls_clients.read_bytes()
    return Tls(options.tls_certificate.read_bytes(), options.tls_key.read_bytes(), clients)


if __name__ == "__main__":
    main()
