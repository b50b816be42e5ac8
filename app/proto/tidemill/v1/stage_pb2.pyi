import datetime

from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Entity(_message.Message):
    __slots__ = ("kind", "id", "version", "json", "message")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    id: str
    version: int
    json: str
    message: _any_pb2.Any
    def __init__(self, kind: _Optional[str] = ..., id: _Optional[str] = ..., version: _Optional[int] = ..., json: _Optional[str] = ..., message: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...

class State(_message.Message):
    __slots__ = ("value", "version")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    value: _any_pb2.Any
    version: int
    def __init__(self, value: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...

class JsonState(_message.Message):
    __slots__ = ("model", "json")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    model: str
    json: str
    def __init__(self, model: _Optional[str] = ..., json: _Optional[str] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: str
    def __init__(self, message: _Optional[str] = ...) -> None: ...

class ShouldProcessRequest(_message.Message):
    __slots__ = ("stage", "entity", "state", "now")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    stage: str
    entity: Entity
    state: State
    now: _timestamp_pb2.Timestamp
    def __init__(self, stage: _Optional[str] = ..., entity: _Optional[_Union[Entity, _Mapping]] = ..., state: _Optional[_Union[State, _Mapping]] = ..., now: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ShouldProcessResponse(_message.Message):
    __slots__ = ("wanted", "at", "after")
    WANTED_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    wanted: bool
    at: _timestamp_pb2.Timestamp
    after: _duration_pb2.Duration
    def __init__(self, wanted: _Optional[bool] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ShouldProcessBatchRequest(_message.Message):
    __slots__ = ("stage", "items", "now")
    class Item(_message.Message):
        __slots__ = ("entity", "state")
        ENTITY_FIELD_NUMBER: _ClassVar[int]
        STATE_FIELD_NUMBER: _ClassVar[int]
        entity: Entity
        state: State
        def __init__(self, entity: _Optional[_Union[Entity, _Mapping]] = ..., state: _Optional[_Union[State, _Mapping]] = ...) -> None: ...
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    stage: str
    items: _containers.RepeatedCompositeFieldContainer[ShouldProcessBatchRequest.Item]
    now: _timestamp_pb2.Timestamp
    def __init__(self, stage: _Optional[str] = ..., items: _Optional[_Iterable[_Union[ShouldProcessBatchRequest.Item, _Mapping]]] = ..., now: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ShouldProcessBatchResponse(_message.Message):
    __slots__ = ("answers",)
    class Answer(_message.Message):
        __slots__ = ("id", "answer", "failure")
        ID_FIELD_NUMBER: _ClassVar[int]
        ANSWER_FIELD_NUMBER: _ClassVar[int]
        FAILURE_FIELD_NUMBER: _ClassVar[int]
        id: str
        answer: ShouldProcessResponse
        failure: Failure
        def __init__(self, id: _Optional[str] = ..., answer: _Optional[_Union[ShouldProcessResponse, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[ShouldProcessBatchResponse.Answer]
    def __init__(self, answers: _Optional[_Iterable[_Union[ShouldProcessBatchResponse.Answer, _Mapping]]] = ...) -> None: ...

class ProcessRequest(_message.Message):
    __slots__ = ("stage", "entity", "state", "now")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    stage: str
    entity: Entity
    state: State
    now: _timestamp_pb2.Timestamp
    def __init__(self, stage: _Optional[str] = ..., entity: _Optional[_Union[Entity, _Mapping]] = ..., state: _Optional[_Union[State, _Mapping]] = ..., now: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ProcessResponse(_message.Message):
    __slots__ = ("untouched", "updated", "patch", "at", "after", "state", "no_state")
    class Untouched(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class Updated(_message.Message):
        __slots__ = ("json", "message")
        JSON_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        json: str
        message: _any_pb2.Any
        def __init__(self, json: _Optional[str] = ..., message: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...
    class Patch(_message.Message):
        __slots__ = ("json", "reads")
        JSON_FIELD_NUMBER: _ClassVar[int]
        READS_FIELD_NUMBER: _ClassVar[int]
        json: str
        reads: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, json: _Optional[str] = ..., reads: _Optional[_Iterable[str]] = ...) -> None: ...
    UNTOUCHED_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    PATCH_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NO_STATE_FIELD_NUMBER: _ClassVar[int]
    untouched: ProcessResponse.Untouched
    updated: ProcessResponse.Updated
    patch: ProcessResponse.Patch
    at: _timestamp_pb2.Timestamp
    after: _duration_pb2.Duration
    state: _any_pb2.Any
    no_state: bool
    def __init__(self, untouched: _Optional[_Union[ProcessResponse.Untouched, _Mapping]] = ..., updated: _Optional[_Union[ProcessResponse.Updated, _Mapping]] = ..., patch: _Optional[_Union[ProcessResponse.Patch, _Mapping]] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., state: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., no_state: _Optional[bool] = ...) -> None: ...

class ProcessBatchRequest(_message.Message):
    __slots__ = ("stage", "items", "now")
    class Item(_message.Message):
        __slots__ = ("entity", "state")
        ENTITY_FIELD_NUMBER: _ClassVar[int]
        STATE_FIELD_NUMBER: _ClassVar[int]
        entity: Entity
        state: State
        def __init__(self, entity: _Optional[_Union[Entity, _Mapping]] = ..., state: _Optional[_Union[State, _Mapping]] = ...) -> None: ...
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    stage: str
    items: _containers.RepeatedCompositeFieldContainer[ProcessBatchRequest.Item]
    now: _timestamp_pb2.Timestamp
    def __init__(self, stage: _Optional[str] = ..., items: _Optional[_Iterable[_Union[ProcessBatchRequest.Item, _Mapping]]] = ..., now: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ProcessBatchResponse(_message.Message):
    __slots__ = ("answers",)
    class Answer(_message.Message):
        __slots__ = ("id", "answer", "failure")
        ID_FIELD_NUMBER: _ClassVar[int]
        ANSWER_FIELD_NUMBER: _ClassVar[int]
        FAILURE_FIELD_NUMBER: _ClassVar[int]
        id: str
        answer: ProcessResponse
        failure: Failure
        def __init__(self, id: _Optional[str] = ..., answer: _Optional[_Union[ProcessResponse, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[ProcessBatchResponse.Answer]
    def __init__(self, answers: _Optional[_Iterable[_Union[ProcessBatchResponse.Answer, _Mapping]]] = ...) -> None: ...

class SavedRequest(_message.Message):
    __slots__ = ("stage", "entity", "state", "sequence")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    stage: str
    entity: Entity
    state: State
    sequence: int
    def __init__(self, stage: _Optional[str] = ..., entity: _Optional[_Union[Entity, _Mapping]] = ..., state: _Optional[_Union[State, _Mapping]] = ..., sequence: _Optional[int] = ...) -> None: ...

class SavedResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
