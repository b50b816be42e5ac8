"""Every error that Tidemill raises on purpose, as one tree.

    TidemillError
    ├── SettingsError            a setting has a wrong value, or one is missing
    ├── EmbeddedError            the embedded servers cannot be started
    │   └── AlreadyRunning       another process runs them in this home
    ├── DatabaseError            Postgres refused, or could not be reached
    │   ├── Unavailable          no connection: down, restarting, too many clients; or its disk is full
    │   ├── PoolExhausted        this process has all its connections in use
    │   └── NotMigrated          the schema is missing or of another release
    ├── BadRequest               what the caller asked for cannot be done as asked
    │   ├── UnknownTask          no Celery task of that name is registered
    │   ├── NotJson              an argument has no JSON form
    │   ├── TooLarge             the payload is over the limit
    │   ├── Unsupported          an option of Celery that a durable job cannot have
    │   ├── NotFound             there is no such row
    │   ├── NotDeclared          the modules that this process has imported do not declare it
    │   ├── WrongState           it runs, waits or has ended, and so this cannot be done to it now
    │   ├── VersionConflict      somebody else has changed it since it was read
    │   ├── MovesBack            a parameter of the control table can only move forward
    │   ├── TooFarAhead          a value that lies too far ahead for anything to come after it
    │   ├── NotRepeatable        a restart would call again what must not be called twice
    │   ├── NestedTrigger        All or Any inside of another one
    │   └── BadOutcome           what a stage returned cannot be saved
    ├── RemoteFailed             a stage that lives in another service did not answer, or answered with an error
    └── ClaimLost                the work is somebody else's now; what it did was not saved

`Unavailable` is worth trying again; nothing else is.
"""

from __future__ import annotations


class TidemillError(Exception):
    """The root: catch it to catch all of Tidemill's."""


class SettingsError(TidemillError):
    pass


class EmbeddedError(TidemillError):
    pass


class AlreadyRunning(EmbeddedError):
    def __init__(self, message: str, servers: object) -> None:
        super().__init__(message)
        self.servers = servers


class DatabaseError(TidemillError):
    pass


class Unavailable(DatabaseError):
    pass


class PoolExhausted(DatabaseError):
    pass


class NotMigrated(DatabaseError):
    pass


class BadRequest(TidemillError, ValueError):
    pass


class UnknownTask(BadRequest):
    pass


class NotJson(BadRequest):
    pass


class TooLarge(BadRequest):
    pass


class Unsupported(BadRequest):
    pass


class NotFound(BadRequest):
    pass


class NotDeclared(BadRequest):
    pass


class WrongState(BadRequest):
    pass


class VersionConflict(BadRequest):
    def __init__(self, message: str, version: int) -> None:
        super().__init__(message)
        #: That is there now.
        self.version = version


class MovesBack(BadRequest):
    pass


class TooFarAhead(BadRequest):
    pass


class NotRepeatable(BadRequest):
    pass


class NestedTrigger(BadRequest, TypeError):
    pass


class BadOutcome(BadRequest):
    pass


class RemoteFailed(TidemillError):
    """`status`: the word of gRPC."""

    def __init__(self, stage: str, address: str, status: str, details: str = "") -> None:
        super().__init__(stage, address, status, details)
        self.stage, self.address, self.status, self.details = stage, address, status, details

    def __str__(self) -> str:
        told = f"{self.stage} at {self.address} answered {self.status}"
        return f"{told}: {self.details}" if self.details else told


class ClaimLost(TidemillError):
    """The work is somebody else's now; what it did was not saved. Let it out: there is nothing to put right."""
