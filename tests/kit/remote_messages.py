"""A message class of offers, as protoc would make it of

message Offer { string id = 1; optional int64 price = 2; string status = 3; int64 version = 4; bytes picture = 5; }
"""

from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

_FILE = descriptor_pb2.FileDescriptorProto(name="tests/kit/remote_offer.proto", package="kit", syntax="proto3")
_OFFER = _FILE.message_type.add(name="Offer")
_OFFER.oneof_decl.add(name="_price")
_Field = descriptor_pb2.FieldDescriptorProto
for _number, _name, _type in (
    (1, "id", _Field.TYPE_STRING),
    (2, "price", _Field.TYPE_INT64),
    (3, "status", _Field.TYPE_STRING),
    (4, "version", _Field.TYPE_INT64),
    (5, "picture", _Field.TYPE_BYTES),
):
    _added = _OFFER.field.add(name=_name, number=_number, type=_type, label=_Field.LABEL_OPTIONAL)
    if _name == "price":
        _added.proto3_optional, _added.oneof_index = True, 0
descriptor_pool.Default().Add(_FILE)

Offer: type[Message] = message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName("kit.Offer"))
NOT_A_MESSAGE = 1
