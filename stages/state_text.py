"""The states of stages as text, for people: JSON as it is, a message where its class is imported here, and of anything
else the first bytes."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf import descriptor_pool, json_format, message_factory, text_format
from google.protobuf.message import DecodeError, Message

from app.proto.tidemill.v1.stage_pb2 import JsonState
from stages.state import Stored

#: Of a text; a state may have a megabyte.
TEXT_MOST = 10_000
#: Of what nobody here can read.
BYTES_MOST = 32


def message_of(stored: Stored) -> Message | None:
    """None: no class of this name is here, or what is stored is none of it."""
    name = stored.type_url.rpartition("/")[2]
    try:
        descriptor = descriptor_pool.Default().FindMessageTypeByName(name)
        found: Message = message_factory.GetMessageClass(descriptor).FromString(stored.value)
    except (KeyError, DecodeError):
        return None
    return found


def text_of(stored: Stored) -> str:
    """On one line."""
    match message_of(stored):
        case None:
            head = f"0x{stored.value[:BYTES_MOST].hex()}" if stored.value else ""
            return head if len(stored.value) <= BYTES_MOST else f"{head}… ({len(stored.value)} bytes)"
        case JsonState() as found:
            text = _one_line(found.json)
        case found:
            text = text_format.MessageToString(found, as_one_line=True, as_utf8=True)
    return text if len(text) <= TEXT_MOST else f"{text[:TEXT_MOST]}… ({len(text)} characters)"


def data_of(stored: Stored) -> Any:
    """As JSON has it; None where that cannot be said."""
    message = message_of(stored)
    try:
        if isinstance(message, JsonState):
            return json.loads(message.json)
        return None if message is None else json_format.MessageToDict(message, preserving_proto_field_name=True)
    except (json_format.Error, TypeError, ValueError, RecursionError):
        return None


def _one_line(text: str) -> str:
    try:
        return json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return repr(text)
