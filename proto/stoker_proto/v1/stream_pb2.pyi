from stoker_proto.v1 import control_pb2 as _control_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Pipeline(_message.Message):
    __slots__ = ("fingerprint", "json", "code")
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    fingerprint: str
    json: str
    code: bytes
    def __init__(self, fingerprint: _Optional[str] = ..., json: _Optional[str] = ..., code: _Optional[bytes] = ...) -> None: ...

class WorkerHello(_message.Message):
    __slots__ = ("version", "worker_id", "host_id", "arena_socket", "limits", "beat_ms", "life")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    ARENA_SOCKET_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    BEAT_MS_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    version: _control_pb2.Version
    worker_id: str
    host_id: str
    arena_socket: str
    limits: _control_pb2.Limits
    beat_ms: int
    life: str
    def __init__(self, version: _Optional[_Union[_control_pb2.Version, _Mapping]] = ..., worker_id: _Optional[str] = ..., host_id: _Optional[str] = ..., arena_socket: _Optional[str] = ..., limits: _Optional[_Union[_control_pb2.Limits, _Mapping]] = ..., beat_ms: _Optional[int] = ..., life: _Optional[str] = ...) -> None: ...

class Killer(_message.Message):
    __slots__ = ("sample", "reason")
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    sample: int
    reason: str
    def __init__(self, sample: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ("pipeline",)
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    pipeline: Pipeline
    def __init__(self, pipeline: _Optional[_Union[Pipeline, _Mapping]] = ...) -> None: ...

class Description(_message.Message):
    __slots__ = ("progress", "dataset", "num_samples", "error")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    NUM_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    progress: str
    dataset: str
    num_samples: int
    error: Error
    def __init__(self, progress: _Optional[str] = ..., dataset: _Optional[str] = ..., num_samples: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class StreamRequest(_message.Message):
    __slots__ = ("version", "pipeline", "dataset", "epoch", "ranges", "batch_size", "num_lanes", "tail", "batch_start", "batch_stop", "batch_stride", "client_id", "job_name", "takes_arena", "slice_bytes", "process", "num_careful", "killers")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_LANES_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    BATCH_START_FIELD_NUMBER: _ClassVar[int]
    BATCH_STOP_FIELD_NUMBER: _ClassVar[int]
    BATCH_STRIDE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_NAME_FIELD_NUMBER: _ClassVar[int]
    TAKES_ARENA_FIELD_NUMBER: _ClassVar[int]
    SLICE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    NUM_CAREFUL_FIELD_NUMBER: _ClassVar[int]
    KILLERS_FIELD_NUMBER: _ClassVar[int]
    version: _control_pb2.Version
    pipeline: Pipeline
    dataset: str
    epoch: int
    ranges: _containers.RepeatedScalarFieldContainer[int]
    batch_size: int
    num_lanes: int
    tail: str
    batch_start: int
    batch_stop: int
    batch_stride: int
    client_id: str
    job_name: str
    takes_arena: bool
    slice_bytes: int
    process: ProcessRequest
    num_careful: int
    killers: _containers.RepeatedCompositeFieldContainer[Killer]
    def __init__(self, version: _Optional[_Union[_control_pb2.Version, _Mapping]] = ..., pipeline: _Optional[_Union[Pipeline, _Mapping]] = ..., dataset: _Optional[str] = ..., epoch: _Optional[int] = ..., ranges: _Optional[_Iterable[int]] = ..., batch_size: _Optional[int] = ..., num_lanes: _Optional[int] = ..., tail: _Optional[str] = ..., batch_start: _Optional[int] = ..., batch_stop: _Optional[int] = ..., batch_stride: _Optional[int] = ..., client_id: _Optional[str] = ..., job_name: _Optional[str] = ..., takes_arena: bool = ..., slice_bytes: _Optional[int] = ..., process: _Optional[_Union[ProcessRequest, _Mapping]] = ..., num_careful: _Optional[int] = ..., killers: _Optional[_Iterable[_Union[Killer, _Mapping]]] = ...) -> None: ...

class ProcessRequest(_message.Message):
    __slots__ = ("job", "lane", "python")
    JOB_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    job: str
    lane: int
    python: str
    def __init__(self, job: _Optional[str] = ..., lane: _Optional[int] = ..., python: _Optional[str] = ...) -> None: ...

class Order(_message.Message):
    __slots__ = ("begin", "fetch", "slice", "heartbeat")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    begin: Begin
    fetch: Fetch
    slice: Slice
    heartbeat: Heartbeat
    def __init__(self, begin: _Optional[_Union[Begin, _Mapping]] = ..., fetch: _Optional[_Union[Fetch, _Mapping]] = ..., slice: _Optional[_Union[Slice, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ...) -> None: ...

class Begin(_message.Message):
    __slots__ = ("words", "payload", "payload_bytes", "run")
    WORDS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    words: bytes
    payload: str
    payload_bytes: int
    run: int
    def __init__(self, words: _Optional[bytes] = ..., payload: _Optional[str] = ..., payload_bytes: _Optional[int] = ..., run: _Optional[int] = ...) -> None: ...

class Fetch(_message.Message):
    __slots__ = ("words", "num_rows", "run", "batch_index")
    WORDS_FIELD_NUMBER: _ClassVar[int]
    NUM_ROWS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    BATCH_INDEX_FIELD_NUMBER: _ClassVar[int]
    words: bytes
    num_rows: int
    run: int
    batch_index: int
    def __init__(self, words: _Optional[bytes] = ..., num_rows: _Optional[int] = ..., run: _Optional[int] = ..., batch_index: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Credit(_message.Message):
    __slots__ = ("num_batches", "num_copied")
    NUM_BATCHES_FIELD_NUMBER: _ClassVar[int]
    NUM_COPIED_FIELD_NUMBER: _ClassVar[int]
    num_batches: int
    num_copied: int
    def __init__(self, num_batches: _Optional[int] = ..., num_copied: _Optional[int] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("beat", "batch", "slice", "error", "leaving", "wanted", "full", "died")
    BEAT_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    DIED_FIELD_NUMBER: _ClassVar[int]
    beat: Beat
    batch: BatchBegin
    slice: Slice
    error: Error
    leaving: Leaving
    wanted: Wanted
    full: Full
    died: Died
    def __init__(self, beat: _Optional[_Union[Beat, _Mapping]] = ..., batch: _Optional[_Union[BatchBegin, _Mapping]] = ..., slice: _Optional[_Union[Slice, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., leaving: _Optional[_Union[Leaving, _Mapping]] = ..., wanted: _Optional[_Union[Wanted, _Mapping]] = ..., full: _Optional[_Union[Full, _Mapping]] = ..., died: _Optional[_Union[Died, _Mapping]] = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ("waits_for", "text", "cpu_s")
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CPU_S_FIELD_NUMBER: _ClassVar[int]
    waits_for: str
    text: str
    cpu_s: float
    def __init__(self, waits_for: _Optional[str] = ..., text: _Optional[str] = ..., cpu_s: _Optional[float] = ...) -> None: ...

class Slice(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Leaving(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Wanted(_message.Message):
    __slots__ = ("payload",)
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    payload: str
    def __init__(self, payload: _Optional[str] = ...) -> None: ...

class Full(_message.Message):
    __slots__ = ("num_processes",)
    NUM_PROCESSES_FIELD_NUMBER: _ClassVar[int]
    num_processes: int
    def __init__(self, num_processes: _Optional[int] = ...) -> None: ...

class Died(_message.Message):
    __slots__ = ("text", "pid")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    text: str
    pid: int
    def __init__(self, text: _Optional[str] = ..., pid: _Optional[int] = ...) -> None: ...

class BatchBegin(_message.Message):
    __slots__ = ("batch_index", "num_bytes", "pieces", "bad", "num_filtered", "conversions", "wait_storage_s", "wait_decode_s", "seal", "killers")
    BATCH_INDEX_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    BAD_FIELD_NUMBER: _ClassVar[int]
    NUM_FILTERED_FIELD_NUMBER: _ClassVar[int]
    CONVERSIONS_FIELD_NUMBER: _ClassVar[int]
    WAIT_STORAGE_S_FIELD_NUMBER: _ClassVar[int]
    WAIT_DECODE_S_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    KILLERS_FIELD_NUMBER: _ClassVar[int]
    batch_index: int
    num_bytes: int
    pieces: _containers.RepeatedCompositeFieldContainer[Piece]
    bad: _containers.RepeatedCompositeFieldContainer[Error]
    num_filtered: int
    conversions: _containers.RepeatedScalarFieldContainer[str]
    wait_storage_s: float
    wait_decode_s: float
    seal: int
    killers: _containers.RepeatedCompositeFieldContainer[Killer]
    def __init__(self, batch_index: _Optional[int] = ..., num_bytes: _Optional[int] = ..., pieces: _Optional[_Iterable[_Union[Piece, _Mapping]]] = ..., bad: _Optional[_Iterable[_Union[Error, _Mapping]]] = ..., num_filtered: _Optional[int] = ..., conversions: _Optional[_Iterable[str]] = ..., wait_storage_s: _Optional[float] = ..., wait_decode_s: _Optional[float] = ..., seal: _Optional[int] = ..., killers: _Optional[_Iterable[_Union[Killer, _Mapping]]] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("inline", "offset", "num_bytes")
    INLINE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    inline: bytes
    offset: int
    num_bytes: int
    def __init__(self, inline: _Optional[bytes] = ..., offset: _Optional[int] = ..., num_bytes: _Optional[int] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("type", "text", "op", "origin", "trace")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    type: str
    text: str
    op: str
    origin: Origin
    trace: str
    def __init__(self, type: _Optional[str] = ..., text: _Optional[str] = ..., op: _Optional[str] = ..., origin: _Optional[_Union[Origin, _Mapping]] = ..., trace: _Optional[str] = ...) -> None: ...

class Origin(_message.Message):
    __slots__ = ("url", "row", "key")
    URL_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    url: str
    row: int
    key: str
    def __init__(self, url: _Optional[str] = ..., row: _Optional[int] = ..., key: _Optional[str] = ...) -> None: ...

class RangesRequest(_message.Message):
    __slots__ = ("version", "source", "source_id", "is_full", "dataset", "ranges", "wait_ms")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    IS_FULL_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    version: _control_pb2.Version
    source: str
    source_id: bytes
    is_full: bool
    dataset: str
    ranges: _containers.RepeatedCompositeFieldContainer[Range]
    wait_ms: int
    def __init__(self, version: _Optional[_Union[_control_pb2.Version, _Mapping]] = ..., source: _Optional[str] = ..., source_id: _Optional[bytes] = ..., is_full: bool = ..., dataset: _Optional[str] = ..., ranges: _Optional[_Iterable[_Union[Range, _Mapping]]] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("url", "start", "stop", "version", "endpoint", "job", "now", "next")
    URL_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    url: str
    start: int
    stop: int
    version: str
    endpoint: str
    job: str
    now: float
    next: float
    def __init__(self, url: _Optional[str] = ..., start: _Optional[int] = ..., stop: _Optional[int] = ..., version: _Optional[str] = ..., endpoint: _Optional[str] = ..., job: _Optional[str] = ..., now: _Optional[float] = ..., next: _Optional[float] = ...) -> None: ...

class RangesAnswer(_message.Message):
    __slots__ = ("error", "wants_source")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    WANTS_SOURCE_FIELD_NUMBER: _ClassVar[int]
    error: Error
    wants_source: bool
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., wants_source: bool = ...) -> None: ...
