from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CommandStageOpen(_message.Message):
    __slots__ = ("request_id", "stage")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    stage: bytes
    def __init__(self, request_id: _Optional[int] = ..., stage: _Optional[bytes] = ...) -> None: ...

class CommandStageAppend(_message.Message):
    __slots__ = ("request_id", "stage", "topic", "at", "entries")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    stage: bytes
    topic: str
    at: int
    entries: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, request_id: _Optional[int] = ..., stage: _Optional[bytes] = ..., topic: _Optional[str] = ..., at: _Optional[int] = ..., entries: _Optional[_Iterable[bytes]] = ...) -> None: ...

class CommandStageAppended(_message.Message):
    __slots__ = ("request_id", "topic_id", "count", "digest")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    topic_id: int
    count: int
    digest: int
    def __init__(self, request_id: _Optional[int] = ..., topic_id: _Optional[int] = ..., count: _Optional[int] = ..., digest: _Optional[int] = ...) -> None: ...

class CommandStageClose(_message.Message):
    __slots__ = ("request_id", "stage")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    stage: bytes
    def __init__(self, request_id: _Optional[int] = ..., stage: _Optional[bytes] = ...) -> None: ...

class StagePart(_message.Message):
    __slots__ = ("stage", "topic_id", "count", "digest")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    stage: bytes
    topic_id: int
    count: int
    digest: int
    def __init__(self, stage: _Optional[bytes] = ..., topic_id: _Optional[int] = ..., count: _Optional[int] = ..., digest: _Optional[int] = ...) -> None: ...

class CommandStageReceipt(_message.Message):
    __slots__ = ("request_id", "parts")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    parts: _containers.RepeatedCompositeFieldContainer[StagePart]
    def __init__(self, request_id: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[StagePart, _Mapping]]] = ...) -> None: ...

class CommandStageDrop(_message.Message):
    __slots__ = ("request_id", "stage")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    stage: bytes
    def __init__(self, request_id: _Optional[int] = ..., stage: _Optional[bytes] = ...) -> None: ...

class CommandSinkCommit(_message.Message):
    __slots__ = ("request_id", "key", "batch", "parts")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    key: str
    batch: int
    parts: _containers.RepeatedCompositeFieldContainer[StagePart]
    def __init__(self, request_id: _Optional[int] = ..., key: _Optional[str] = ..., batch: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[StagePart, _Mapping]]] = ...) -> None: ...

class CommandSinkCommitted(_message.Message):
    __slots__ = ("request_id", "committed", "batch")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    committed: bool
    batch: int
    def __init__(self, request_id: _Optional[int] = ..., committed: _Optional[bool] = ..., batch: _Optional[int] = ...) -> None: ...

class CommandProgress(_message.Message):
    __slots__ = ("request_id", "topic", "subscription", "create", "earliest", "incarnation")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    topic: str
    subscription: str
    create: bool
    earliest: bool
    incarnation: bytes
    def __init__(self, request_id: _Optional[int] = ..., topic: _Optional[str] = ..., subscription: _Optional[str] = ..., create: _Optional[bool] = ..., earliest: _Optional[bool] = ..., incarnation: _Optional[bytes] = ...) -> None: ...

class CommandProgressResponse(_message.Message):
    __slots__ = ("request_id", "incarnation", "reset_number", "acked_to", "first", "visible", "log_time")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RESET_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ACKED_TO_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_FIELD_NUMBER: _ClassVar[int]
    LOG_TIME_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    incarnation: bytes
    reset_number: int
    acked_to: int
    first: int
    visible: int
    log_time: int
    def __init__(self, request_id: _Optional[int] = ..., incarnation: _Optional[bytes] = ..., reset_number: _Optional[int] = ..., acked_to: _Optional[int] = ..., first: _Optional[int] = ..., visible: _Optional[int] = ..., log_time: _Optional[int] = ...) -> None: ...

class CommandProgressAdvance(_message.Message):
    __slots__ = ("request_id", "topic", "subscription", "reset_number", "to", "incarnation")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    RESET_NUMBER_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    topic: str
    subscription: str
    reset_number: int
    to: int
    incarnation: bytes
    def __init__(self, request_id: _Optional[int] = ..., topic: _Optional[str] = ..., subscription: _Optional[str] = ..., reset_number: _Optional[int] = ..., to: _Optional[int] = ..., incarnation: _Optional[bytes] = ...) -> None: ...

class CommandHttpPorts(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    def __init__(self, request_id: _Optional[int] = ...) -> None: ...

class CommandHttpPortsResponse(_message.Message):
    __slots__ = ("request_id", "http_port", "https_port")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    HTTP_PORT_FIELD_NUMBER: _ClassVar[int]
    HTTPS_PORT_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    http_port: int
    https_port: int
    def __init__(self, request_id: _Optional[int] = ..., http_port: _Optional[int] = ..., https_port: _Optional[int] = ...) -> None: ...
