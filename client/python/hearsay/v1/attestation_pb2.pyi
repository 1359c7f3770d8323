from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class GetEvidenceRequest(_message.Message):
    __slots__ = ("survey", "nonce")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    survey: str
    nonce: bytes
    def __init__(self, survey: _Optional[str] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class GetEvidenceResponse(_message.Message):
    __slots__ = ("kind", "document", "collateral")
    KIND_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    COLLATERAL_FIELD_NUMBER: _ClassVar[int]
    kind: str
    document: bytes
    collateral: bytes
    def __init__(self, kind: _Optional[str] = ..., document: _Optional[bytes] = ..., collateral: _Optional[bytes] = ...) -> None: ...
