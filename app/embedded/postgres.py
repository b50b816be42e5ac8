"""The embedded Postgres: durable, on a loopback port, with passwords."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import IO

import psycopg2
from psycopg2 import sql
from psycopg2.extensions import connection, encrypt_password

from app.embedded import binaries
from app.embedded.home import ADMIN, DATABASE, HOST, ROLE
from app.embedded.process import Account, command_of, myself, spawn
from app.embedded.server import START_LIMIT, Server
from app.errors import EmbeddedError

# The server finds its data by its working directory. A path would have to be open to the account it runs under, and
# that of root's project in /root is not.
DATA = "/proc/self/cwd"
OPTIONS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "password_encryption": "scram-sha-256",
    "logging_collector": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class Postgres(Server):
    title = "the embedded Postgres"
    stop_signal = signal.SIGINT  # fast: does not wait for clients
    death_signal = signal.SIGQUIT  # immediate: also ends busy children, and the next start recovers
    passing = ("pre-existing shared memory block", 'lock file "postmaster.pid" already exists')

    def __init__(
        self, name: str, port: int, home: Path, admin_password: str, version: int, options: Mapping[str, str]
    ) -> None:
        super().__init__(name, port, home / "postgres", home / "postgres.log")
        self._password = admin_password
        self._version = version
        self._options = {**OPTIONS, **options, "cluster_name": name}
        self._account = self._choose_account()
        programs = binaries.postgres(version)
        self._programs = programs if self._account == myself() else binaries.reachable(programs)

    def initialise(self) -> None:
        """Makes the data directory if there is none. A half made one is never taken for a whole."""
        if self.data.exists():
            self._check_version()
            return
        for abandoned in self.data.parent.glob("initdb-*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        draft = Path(tempfile.mkdtemp(prefix="initdb-", dir=self.data.parent))
        os.chown(draft, *self._account)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            status = self._initdb(draft, log).wait(START_LIMIT)
        if status != 0:
            raise self._failure(f"could not be initialised: initdb ended with status {status}")
        draft.rename(self.data)

    def create_database(self, password: str) -> None:
        """The application's role and its database, if they are not there."""
        with closing(self._connect()) as session, session.cursor() as cursor:
            session.autocommit = True
            cursor.execute("SELECT FROM pg_roles WHERE rolname = %s", [ROLE])
            if cursor.rowcount == 0:
                # Hashed here, so that no log or activity view of the server ever holds it.
                verifier = encrypt_password(password, ROLE, session, "scram-sha-256")
                cursor.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD %s").format(sql.Identifier(ROLE)), [verifier])
            # The role is named like our schema, which "$user" would put before `public` for the user's own tables.
            cursor.execute(sql.SQL("ALTER ROLE {} SET search_path = public").format(sql.Identifier(ROLE)))
            cursor.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE])
            if cursor.rowcount == 0:
                names = sql.Identifier(DATABASE), sql.Identifier(ROLE)
                cursor.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(*names))

    def _choose_account(self) -> Account:
        """Postgres refuses to run as root, and on data of another account."""
        if self.data.exists():
            status = self.data.stat()
            account = Account(status.st_uid, status.st_gid)
            if os.geteuid() not in (0, account.uid):
                raise EmbeddedError(
                    f"{self.data} belongs to the account number {account.uid}, and you are {os.geteuid()}: "
                    "run as that account or as root, or choose another home"
                )
            return account
        if os.geteuid() != 0:
            return myself()
        try:
            entry = pwd.getpwnam("nobody")
        except KeyError:
            raise EmbeddedError(
                "Postgres cannot run as root, and there is no account 'nobody' to run it as: run as an ordinary user"
            ) from None
        return Account(entry.pw_uid, entry.pw_gid)

    def _check_version(self) -> None:
        found = (self.data / "PG_VERSION").read_text().strip()
        if found != str(self._version):
            raise EmbeddedError(
                f"{self.data} is of Postgres {found} and cannot be opened by {self._version}: "
                f"pass postgres_version={found}, or choose another home"
            )

    def _initdb(self, directory: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
        options = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        if self._version >= 17:  # knows letters beyond ASCII without asking the C library
            options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        read, write = os.pipe()
        with open(read, "rb") as stdin, open(write, "wb") as password:
            os.fchown(read, *self._account)  # initdb opens the pipe by name, which asks whose it is
            password.write(self._password.encode() + b"\n")
            password.close()
            return spawn(
                [self._programs / "initdb", "-D", DATA, "-U", ADMIN, "--pwfile=/proc/self/fd/0", *options],
                cwd=directory,
                stdin=stdin.fileno(),
                log=log,
                account=self._account,
                death_signal=signal.SIGKILL,
            )

    def _launch(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        self._drop_reused_pid()
        options = {**self._options, "port": str(self.port)}
        return spawn(
            [self._programs / "postgres", "-D", DATA, *(f"--{name}={value}" for name, value in options.items())],
            cwd=self.data,
            stdin=subprocess.DEVNULL,
            log=log,
            account=self._account,
            death_signal=self.death_signal,
        )

    def _drop_reused_pid(self) -> None:
        """None of our processes is left here. If the pid of the last one is in use, as is usual when a container starts
        again, Postgres would take the stranger for itself and refuse."""
        file = self.data / "postmaster.pid"
        with suppress(FileNotFoundError, ValueError):
            if command_of(int(file.read_text().split("\n", 1)[0])):
                file.unlink()

    def _connect(self) -> connection:
        return psycopg2.connect(
            host=HOST,
            port=self.port,
            user=ADMIN,
            password=self._password,
            dbname=ADMIN,
            connect_timeout=2,
            sslmode="disable",
            gssencmode="disable",
        )

    def _greet(self) -> None:
        try:
            self._connect().close()
        except psycopg2.OperationalError as error:
            raise ConnectionError(str(error)) from error

    def _is_mine(self, command: bytes) -> bool:
        mark = self.name.encode()
        return command.startswith(b"postgres: " + mark + b":") or b"\0--cluster_name=" + mark + b"\0" in command
