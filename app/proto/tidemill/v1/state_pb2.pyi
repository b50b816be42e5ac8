from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReadStateRequest(_message.Message):
    __slots__ = ("kind", "stage", "entity_id")
    KIND_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ENTITY_ID_FIELD_NUMBER: _ClassVar[int]
    kind: str
    stage: str
    entity_id: str
    def __init__(self, kind: _Optional[str] = ..., stage: _Optional[str] = ..., entity_id: _Optional[str] = ...) -> None: ...

class ReadStateResponse(_message.Message):
    __slots__ = ("state", "version")
    STATE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    state: _any_pb2.Any
    version: int
    def __init__(self, state: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...

class UpdateStateRequest(_message.Message):
    __slots__ = ("kind", "stage", "entity_id", "version", "state", "visit")
    KIND_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ENTITY_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    VISIT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    stage: str
    entity_id: str
    version: int
    state: _any_pb2.Any
    visit: bool
    def __init__(self, kind: _Optional[str] = ..., stage: _Optional[str] = ..., entity_id: _Optional[str] = ..., version: _Optional[int] = ..., state: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., visit: _Optional[bool] = ...) -> None: ...

class UpdateStateResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...
