"""`tidemill up`: everything on one machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

import click

from app import db, embedded
from app.cli import demo as demos
from app.cli import first_token, modules, services
from app.cli.demo import Demo
from app.cli.interrupts import Interrupts
from app.cli.migrate import upgrade
from app.cli.pids import Pids
from app.cli.ready import Ports, Readiness, summary
from app.cli.screen import Screen
from app.cli.supervise import Spec, Stage, Supervisor
from app.embedded import OwnServers
from app.embedded.server import Server, free_port, is_free
from app.errors import EmbeddedError
from app.settings import settings

FLOWER_PORT = 5555
LOOK_SECONDS = 0.2
#: Beyond the grace: handing back, saying goodbye to the broker, ending.
EXTRA_SECONDS = 10.0
PRODUCER_SECONDS, SERVICE_SECONDS = 15.0, 20.0


@click.command()
@click.option("--demo", is_flag=True, help="Run the examples, with visible work.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="How many workers.")
@click.option("--flower-port", type=click.IntRange(1, 65535), help="Where Flower listens; 5555 where that is free.")
@click.option(
    "--console-port", type=click.IntRange(1, 65535), help="Where the console listens; 8765 where that is free."
)
def up(*, demo: bool, workers: int, flower_port: int | None, console_port: int | None) -> None:
    """Runs everything on this machine until Ctrl-C.

    That is embedded Postgres and Redis, workers, scheduler, beat, the console and Flower. Servers that
    TIDEMILL_DATABASE_URL and TIDEMILL_BROKER_URL name are used instead of embedded ones. The tasks are those of
    TIDEMILL_MODULES; modules in the current directory are found.

    \b
    Examples:
      TIDEMILL_MODULES=shop.tasks tidemill up
      tidemill up --demo
    """
    modules.refuse_names_of_ours()
    ports = Ports(
        _port("--flower-port", flower_port, FLOWER_PORT),
        _port("--console-port", console_port, settings().console_port),
    )
    with Interrupts() as interrupts, ExitStack() as stack:
        paths = demos.prepare() if demo else []
        servers = stack.enter_context(_servers())
        stack.callback(db.dispose)
        upgrade()
        if demo:
            demos.create_tables()
        for line in modules.make_known():
            click.echo(line)
        # Of the demo's hundreds of jobs, those are shown that something happens to.
        specs = services.specs(
            workers, modules.user_queues(), ports.flower, ports.console, "WARNING" if demo else "INFO"
        )
        if demo:
            specs.append(demos.producer())
        interrupts.patient()
        env = services.environment(paths=paths, more=ports.links())
        _run(interrupts, servers, specs, env, ports, demo=demo)


def _port(option: str, given: int | None, usual: int) -> int:
    if given is not None and not is_free(given):
        raise click.ClickException(
            f"{option}: port {given} of this machine is taken by another program: give another one"
        )
    return given or (usual if usual and is_free(usual) else free_port())


def _token(*, own: bool) -> str | None:
    """The first one of an operator, if there was none: for a terminal, and for whatever shows this where all of it
    is on this machine alone."""
    if not own and not sys.stdout.isatty():
        return None
    with db.transaction() as session:
        return first_token.make(session)


def _welcome(ports: Ports, token: str | None) -> str:
    if token is None:
        return f"sign in at {ports.url} with a token of yours; another one: {first_token.MAKE_ONE}"
    return f"sign in at {ports.url} with this token of an operator; it is shown this once:\n\n  {token}\n"


@contextmanager
def _servers() -> Iterator[OwnServers | None]:
    """Embedded ones, unless both are given."""
    if settings().database_url and settings().broker_url:
        yield None
        return
    click.echo(f"starting the embedded servers of {settings().home.absolute()}")
    with embedded.servers(settings().home) as own:
        yield own
    # Whoever has closed the terminal has no need of it.
    with suppress(OSError):
        click.echo("the embedded servers have ended")


def _run(
    interrupts: Interrupts,
    servers: OwnServers | None,
    specs: list[Spec],
    env: dict[str, str],
    ports: Ports,
    *,
    demo: bool,
) -> None:
    screen = Screen([spec.name for spec in specs], interrupts.stop)
    pids = Pids(None if servers is None else servers.home)
    supervisor = Supervisor(specs, env, screen, pids)
    ready = Readiness(supervisor, ports)
    watched = Demo(supervisor, screen, ports.url) if demo else None
    # Before the console looks whether there is one.
    token = _token(own=servers is not None)
    try:
        screen.say(f"starting {', '.join(spec.name for spec in specs)}")
        supervisor.start()
        for name, server in _named(servers):
            pids.note(name, server.pid)
        while not interrupts.wait(LOOK_SECONDS):
            _look_at(servers, screen, pids)
            supervisor.look()
            if ready.became():
                screen.say(summary(ready.late, ports))
                screen.say(_welcome(ports, token))
                if watched is not None:
                    watched.invite()
            elif ready.told and watched is not None:
                watched.look()
    finally:
        grace = settings().grace.total_seconds()
        screen.say(f"stopping: what runs may end within {grace:g} s; Ctrl-C again does not wait")
        limits = {
            Stage.PRODUCER: PRODUCER_SECONDS,
            Stage.WORKER: grace + EXTRA_SECONDS,
            Stage.SERVICE: SERVICE_SECONDS,
        }
        supervisor.stop(limits, interrupts.hurry)
        for name, _ in _named(servers):
            pids.forget(name)
        screen.say("all have ended" if servers is None else "all have ended; now the servers")


def _look_at(servers: OwnServers | None, screen: Screen, pids: Pids) -> None:
    for name, server in _named(servers):
        try:
            _ = server.pid
        except EmbeddedError:
            screen.say(f"{server.title} has died; it is started again")
            server.start()
            pids.note(name, server.pid)


def _named(servers: OwnServers | None) -> Sequence[tuple[str, Server]]:
    return () if servers is None else (("postgres", servers.postgres), ("broker", servers.broker))
