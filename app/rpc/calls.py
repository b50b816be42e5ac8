"""What every call goes through, whatever its method: token, message, right, deadline, status, log.

To gRPC, each method takes a stream of bytes: so the token is looked at before the message is there, a message that
cannot be read is answered with a status of ours, and whoever never sends one can be told to go.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from grpc import StatusCode

from app import logs
from app.db import remaining_time
from app.errors import BadRequest
from app.rpc import status
from app.rpc.gate import Gate
from app.rpc.overseer import Overseer
from app.rpc.status import Refused, Told
from app.tokens import Action, Holder

log = logging.getLogger(__name__)

#: No call gets more, whatever it asks for.
LONGEST = 60.0
#: gRPC tells of no deadline by one that is far away.
_NEVER = 365 * 86400.0
_QUIET = (StatusCode.ABORTED, StatusCode.NOT_FOUND, StatusCode.FAILED_PRECONDITION, StatusCode.INVALID_ARGUMENT)

Q = TypeVar("Q", bound=Message)


@dataclass(frozen=True)
class Method(Generic[Q]):
    #: As in `tidemill.v1.Ctl`, and as in `Advance`.
    service: str
    name: str
    request: type[Q]
    action: Action
    #: For which of the names of a scope it is.
    subject: Callable[[Q], str]
    run: Callable[[Q], Message]

    def __str__(self) -> str:
        return f"{self.service}/{self.name}"


class Calls:
    def __init__(self, gate: Gate, overseer: Overseer, deadline: float) -> None:
        self._gate, self._overseer, self._deadline = gate, overseer, deadline
        self._running = 0
        self._ended = threading.Condition()

    def are_over(self, seconds: float) -> bool:
        """Waits so long for it."""
        with self._ended:
            return self._ended.wait_for(lambda: self._running == 0, seconds)

    def handler(self, method: Method[Any]) -> grpc.RpcMethodHandler[Any, Any]:
        def serve(requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            with self._counted(), logs.about(call=str(method)):
                return self._serve(method, requests, context)

        return grpc.stream_unary_rpc_method_handler(serve)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._ended:
            self._running += 1
        try:
            yield
        finally:
            with self._ended:
                self._running -= 1
                self._ended.notify_all()

    def _serve(self, method: Method[Any], requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        remaining = self.remaining(context)
        holder: Holder | None = None
        token = remaining_time.set(remaining)
        try:
            holder = self._gate.admit(context.invocation_metadata())
            if not may_ever(holder, method.action):
                raise _denied(holder, method.action)
            request = self.message(method.request, requests, context, remaining())
            if not holder.may(method.action, subject := method.subject(request)):
                raise _denied(holder, method.action, subject)
            return method.run(request).SerializeToString()
        except Exception as error:
            if status.gone(error):
                raise
            told = status.of(error)
            _log(str(method), context, holder, told, error)
        finally:
            remaining_time.reset(token)
        return refuse(context, told)

    def admit(self, name: str, action: Action, context: grpc.ServicerContext) -> None:
        """The same for a stream, as far as that goes: the token, and whether its role may do this at all."""
        holder: Holder | None = None
        token = remaining_time.set(self.remaining(context))
        try:
            holder = self._gate.admit(context.invocation_metadata())
            if may_ever(holder, action):
                return
            raise _denied(holder, action)
        except Exception as error:  # noqa: BLE001 - every error becomes a status
            told = status.of(error)
            _log(name, context, holder, told, error)
        finally:
            remaining_time.reset(token)
        refuse(context, told)

    def remaining(self, context: grpc.ServicerContext) -> Callable[[], float]:
        left = context.time_remaining()
        seconds = self._deadline if left > _NEVER else min(left, LONGEST)
        end = time.monotonic() + seconds
        return lambda: end - time.monotonic()

    def message(self, of: type[Q], requests: Iterator[bytes], context: grpc.ServicerContext, seconds: float) -> Q:
        """The one message of a call."""
        with self._overseer.waiting(context, seconds):
            found = [data for _, data in zip(range(2), requests, strict=False)]
        if len(found) != 1:
            raise BadRequest("this method takes one message" if found else "there is no message in this call")
        try:
            return of.FromString(found[0])
        except DecodeError:
            raise BadRequest(f"the message cannot be read as {of.DESCRIPTOR.full_name}") from None


def may_ever(holder: Holder, action: Action) -> bool:
    """Whether the role may do this for any name."""
    return Holder(holder.name, holder.role).may(action, "")


def _denied(holder: Holder, action: Action, name: str = "") -> Refused:
    return Refused(StatusCode.PERMISSION_DENIED, holder.denial(action, name))


def refuse(context: grpc.ServicerContext, told: Told) -> NoReturn:
    if told.metadata:
        context.set_trailing_metadata(told.metadata)
    context.abort(told.code, told.text)


def _log(name: str, context: grpc.ServicerContext, holder: Holder | None, told: Told, error: Exception) -> None:
    """One line; a traceback where we ourselves are wrong."""
    level = logging.INFO if told.code in _QUIET else logging.WARNING
    inside = told.code is StatusCode.INTERNAL
    who = f"token {holder.name}" if holder is not None else "no token"
    words = (name, context.peer(), who, told.code.name)
    log.log(logging.ERROR if inside else level, "%s from %s, %s: %s", *words, exc_info=error if inside else None)
