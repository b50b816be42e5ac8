"""Classes of protobuf messages as other releases had them, made without protoc."""

from __future__ import annotations

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import Message

TEXT, NUMBER = FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_INT64


def message(full_name: str, **fields: tuple[int, FieldDescriptorProto.Type.ValueType]) -> type[Message]:
    """In a pool of its own, so that there may be several of one name. `fields`: number and type."""
    package, _, name = full_name.rpartition(".")
    file = FileDescriptorProto(name=f"{full_name}.proto", package=package, syntax="proto3")
    described = file.message_type.add(name=name)
    for field, (number, kind) in fields.items():
        described.field.add(name=field, number=number, type=kind, label=FieldDescriptorProto.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName(full_name))
    return found
