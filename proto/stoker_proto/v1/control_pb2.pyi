from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Version(_message.Message):
    __slots__ = ("protocol", "oldest_protocol", "release")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    oldest_protocol: int
    release: str
    def __init__(self, protocol: _Optional[int] = ..., oldest_protocol: _Optional[int] = ..., release: _Optional[str] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_message_bytes", "max_pipeline_bytes", "max_lanes", "max_jobs")
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_PIPELINE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_LANES_FIELD_NUMBER: _ClassVar[int]
    MAX_JOBS_FIELD_NUMBER: _ClassVar[int]
    max_message_bytes: int
    max_pipeline_bytes: int
    max_lanes: int
    max_jobs: int
    def __init__(self, max_message_bytes: _Optional[int] = ..., max_pipeline_bytes: _Optional[int] = ..., max_lanes: _Optional[int] = ..., max_jobs: _Optional[int] = ...) -> None: ...

class HelloRequest(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: Version
    def __init__(self, version: _Optional[_Union[Version, _Mapping]] = ...) -> None: ...

class HelloResponse(_message.Message):
    __slots__ = ("version", "limits", "beat_ms", "dispatcher_id")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    BEAT_MS_FIELD_NUMBER: _ClassVar[int]
    DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    version: Version
    limits: Limits
    beat_ms: int
    dispatcher_id: str
    def __init__(self, version: _Optional[_Union[Version, _Mapping]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., beat_ms: _Optional[int] = ..., dispatcher_id: _Optional[str] = ...) -> None: ...

class Worker(_message.Message):
    __slots__ = ("worker_id", "location", "host_id", "num_threads", "allows_code", "pid", "release", "max_processes", "keeps_cache", "backend", "device")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_THREADS_FIELD_NUMBER: _ClassVar[int]
    ALLOWS_CODE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    MAX_PROCESSES_FIELD_NUMBER: _ClassVar[int]
    KEEPS_CACHE_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    location: str
    host_id: str
    num_threads: int
    allows_code: bool
    pid: int
    release: str
    max_processes: int
    keeps_cache: bool
    backend: str
    device: str
    def __init__(self, worker_id: _Optional[str] = ..., location: _Optional[str] = ..., host_id: _Optional[str] = ..., num_threads: _Optional[int] = ..., allows_code: bool = ..., pid: _Optional[int] = ..., release: _Optional[str] = ..., max_processes: _Optional[int] = ..., keeps_cache: bool = ..., backend: _Optional[str] = ..., device: _Optional[str] = ...) -> None: ...

class RegisterWorkerRequest(_message.Message):
    __slots__ = ("worker",)
    WORKER_FIELD_NUMBER: _ClassVar[int]
    worker: Worker
    def __init__(self, worker: _Optional[_Union[Worker, _Mapping]] = ...) -> None: ...

class RegisterWorkerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WorkerJob(_message.Message):
    __slots__ = ("pipeline", "rows", "decode_s", "lanes")
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    DECODE_S_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    pipeline: str
    rows: int
    decode_s: float
    lanes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, pipeline: _Optional[str] = ..., rows: _Optional[int] = ..., decode_s: _Optional[float] = ..., lanes: _Optional[_Iterable[int]] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("worker_id", "location")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    location: str
    def __init__(self, worker_id: _Optional[str] = ..., location: _Optional[str] = ...) -> None: ...

class FleetCounts(_message.Message):
    __slots__ = ("local_bytes", "peer_bytes", "origin_bytes", "given_bytes", "calls_served", "calls_refused", "calls_late")
    LOCAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    PEER_BYTES_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    GIVEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    CALLS_SERVED_FIELD_NUMBER: _ClassVar[int]
    CALLS_REFUSED_FIELD_NUMBER: _ClassVar[int]
    CALLS_LATE_FIELD_NUMBER: _ClassVar[int]
    local_bytes: int
    peer_bytes: int
    origin_bytes: int
    given_bytes: int
    calls_served: int
    calls_refused: int
    calls_late: int
    def __init__(self, local_bytes: _Optional[int] = ..., peer_bytes: _Optional[int] = ..., origin_bytes: _Optional[int] = ..., given_bytes: _Optional[int] = ..., calls_served: _Optional[int] = ..., calls_refused: _Optional[int] = ..., calls_late: _Optional[int] = ...) -> None: ...

class PrefixUse(_message.Message):
    __slots__ = ("prefix", "requests", "throttled", "waited", "seconds", "limit")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_FIELD_NUMBER: _ClassVar[int]
    WAITED_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    requests: int
    throttled: int
    waited: int
    seconds: float
    limit: float
    def __init__(self, prefix: _Optional[str] = ..., requests: _Optional[int] = ..., throttled: _Optional[int] = ..., waited: _Optional[int] = ..., seconds: _Optional[float] = ..., limit: _Optional[float] = ...) -> None: ...

class PrefixLimit(_message.Message):
    __slots__ = ("prefix", "requests_per_s")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_PER_S_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    requests_per_s: float
    def __init__(self, prefix: _Optional[str] = ..., requests_per_s: _Optional[float] = ...) -> None: ...

class WorkerBeatRequest(_message.Message):
    __slots__ = ("worker_id", "jobs", "is_draining", "num_streams", "queued_bytes", "bad_samples", "num_processes", "prefixes", "members_version", "fleet")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    IS_DRAINING_FIELD_NUMBER: _ClassVar[int]
    NUM_STREAMS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_BYTES_FIELD_NUMBER: _ClassVar[int]
    BAD_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    NUM_PROCESSES_FIELD_NUMBER: _ClassVar[int]
    PREFIXES_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_VERSION_FIELD_NUMBER: _ClassVar[int]
    FLEET_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    jobs: _containers.RepeatedCompositeFieldContainer[WorkerJob]
    is_draining: bool
    num_streams: int
    queued_bytes: int
    bad_samples: int
    num_processes: int
    prefixes: _containers.RepeatedCompositeFieldContainer[PrefixUse]
    members_version: str
    fleet: FleetCounts
    def __init__(self, worker_id: _Optional[str] = ..., jobs: _Optional[_Iterable[_Union[WorkerJob, _Mapping]]] = ..., is_draining: bool = ..., num_streams: _Optional[int] = ..., queued_bytes: _Optional[int] = ..., bad_samples: _Optional[int] = ..., num_processes: _Optional[int] = ..., prefixes: _Optional[_Iterable[_Union[PrefixUse, _Mapping]]] = ..., members_version: _Optional[str] = ..., fleet: _Optional[_Union[FleetCounts, _Mapping]] = ...) -> None: ...

class WorkerBeatResponse(_message.Message):
    __slots__ = ("is_known", "should_drain", "should_stop", "is_last", "limits", "members", "members_version")
    IS_KNOWN_FIELD_NUMBER: _ClassVar[int]
    SHOULD_DRAIN_FIELD_NUMBER: _ClassVar[int]
    SHOULD_STOP_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_VERSION_FIELD_NUMBER: _ClassVar[int]
    is_known: bool
    should_drain: bool
    should_stop: bool
    is_last: bool
    limits: _containers.RepeatedCompositeFieldContainer[PrefixLimit]
    members: _containers.RepeatedCompositeFieldContainer[Member]
    members_version: str
    def __init__(self, is_known: bool = ..., should_drain: bool = ..., should_stop: bool = ..., is_last: bool = ..., limits: _Optional[_Iterable[_Union[PrefixLimit, _Mapping]]] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., members_version: _Optional[str] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("pipeline", "name", "num_lanes", "world_size", "has_code")
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_LANES_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    HAS_CODE_FIELD_NUMBER: _ClassVar[int]
    pipeline: str
    name: str
    num_lanes: int
    world_size: int
    has_code: bool
    def __init__(self, pipeline: _Optional[str] = ..., name: _Optional[str] = ..., num_lanes: _Optional[int] = ..., world_size: _Optional[int] = ..., has_code: bool = ...) -> None: ...

class OpenJobRequest(_message.Message):
    __slots__ = ("job", "client_id", "rank", "host_id")
    JOB_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    job: Job
    client_id: str
    rank: int
    host_id: str
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., client_id: _Optional[str] = ..., rank: _Optional[int] = ..., host_id: _Optional[str] = ...) -> None: ...

class Owner(_message.Message):
    __slots__ = ("lane", "worker_id", "location", "host_id")
    LANE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    lane: int
    worker_id: str
    location: str
    host_id: str
    def __init__(self, lane: _Optional[int] = ..., worker_id: _Optional[str] = ..., location: _Optional[str] = ..., host_id: _Optional[str] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("version", "owners", "reason", "is_refusal")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    IS_REFUSAL_FIELD_NUMBER: _ClassVar[int]
    version: str
    owners: _containers.RepeatedCompositeFieldContainer[Owner]
    reason: str
    is_refusal: bool
    def __init__(self, version: _Optional[str] = ..., owners: _Optional[_Iterable[_Union[Owner, _Mapping]]] = ..., reason: _Optional[str] = ..., is_refusal: bool = ...) -> None: ...

class OpenJobResponse(_message.Message):
    __slots__ = ("assignment",)
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    assignment: Assignment
    def __init__(self, assignment: _Optional[_Union[Assignment, _Mapping]] = ...) -> None: ...

class ClientBeatRequest(_message.Message):
    __slots__ = ("pipeline", "name", "client_id", "assignment_version", "rows", "steps", "wait_s", "active_s", "epoch", "queued_bytes")
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_S_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    QUEUED_BYTES_FIELD_NUMBER: _ClassVar[int]
    pipeline: str
    name: str
    client_id: str
    assignment_version: str
    rows: int
    steps: int
    wait_s: float
    active_s: float
    epoch: int
    queued_bytes: int
    def __init__(self, pipeline: _Optional[str] = ..., name: _Optional[str] = ..., client_id: _Optional[str] = ..., assignment_version: _Optional[str] = ..., rows: _Optional[int] = ..., steps: _Optional[int] = ..., wait_s: _Optional[float] = ..., active_s: _Optional[float] = ..., epoch: _Optional[int] = ..., queued_bytes: _Optional[int] = ...) -> None: ...

class ClientBeatResponse(_message.Message):
    __slots__ = ("is_known", "assignment")
    IS_KNOWN_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    is_known: bool
    assignment: Assignment
    def __init__(self, is_known: bool = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ...) -> None: ...

class ReportUnreachableRequest(_message.Message):
    __slots__ = ("pipeline", "name", "client_id", "worker_id", "reason")
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    pipeline: str
    name: str
    client_id: str
    worker_id: str
    reason: str
    def __init__(self, pipeline: _Optional[str] = ..., name: _Optional[str] = ..., client_id: _Optional[str] = ..., worker_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ReportUnreachableResponse(_message.Message):
    __slots__ = ("is_dead", "assignment")
    IS_DEAD_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    is_dead: bool
    assignment: Assignment
    def __init__(self, is_dead: bool = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ...) -> None: ...

class CloseJobRequest(_message.Message):
    __slots__ = ("pipeline", "name", "client_id")
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    pipeline: str
    name: str
    client_id: str
    def __init__(self, pipeline: _Optional[str] = ..., name: _Optional[str] = ..., client_id: _Optional[str] = ...) -> None: ...

class CloseJobResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("worker_id",)
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    def __init__(self, worker_id: _Optional[str] = ...) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ("worker_id",)
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    def __init__(self, worker_id: _Optional[str] = ...) -> None: ...

class StopRequest(_message.Message):
    __slots__ = ("when_jobs_end",)
    WHEN_JOBS_END_FIELD_NUMBER: _ClassVar[int]
    when_jobs_end: bool
    def __init__(self, when_jobs_end: bool = ...) -> None: ...

class StopResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WorkerStatus(_message.Message):
    __slots__ = ("worker", "state", "silent_s", "num_lanes", "rows_per_s", "beat")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SILENT_S_FIELD_NUMBER: _ClassVar[int]
    NUM_LANES_FIELD_NUMBER: _ClassVar[int]
    ROWS_PER_S_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    worker: Worker
    state: str
    silent_s: float
    num_lanes: int
    rows_per_s: float
    beat: WorkerBeatRequest
    def __init__(self, worker: _Optional[_Union[Worker, _Mapping]] = ..., state: _Optional[str] = ..., silent_s: _Optional[float] = ..., num_lanes: _Optional[int] = ..., rows_per_s: _Optional[float] = ..., beat: _Optional[_Union[WorkerBeatRequest, _Mapping]] = ...) -> None: ...

class ClientStatus(_message.Message):
    __slots__ = ("client_id", "rank", "silent_s", "rows_per_s", "starved_fraction", "beat")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SILENT_S_FIELD_NUMBER: _ClassVar[int]
    ROWS_PER_S_FIELD_NUMBER: _ClassVar[int]
    STARVED_FRACTION_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    rank: int
    silent_s: float
    rows_per_s: float
    starved_fraction: float
    beat: ClientBeatRequest
    def __init__(self, client_id: _Optional[str] = ..., rank: _Optional[int] = ..., silent_s: _Optional[float] = ..., rows_per_s: _Optional[float] = ..., starved_fraction: _Optional[float] = ..., beat: _Optional[_Union[ClientBeatRequest, _Mapping]] = ...) -> None: ...

class JobStatus(_message.Message):
    __slots__ = ("job", "clients", "assignment")
    JOB_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    job: Job
    clients: _containers.RepeatedCompositeFieldContainer[ClientStatus]
    assignment: Assignment
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., clients: _Optional[_Iterable[_Union[ClientStatus, _Mapping]]] = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ...) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("version", "dispatcher_id", "up_s", "workers", "jobs", "num_workers_wanted", "reassignments", "wanted_reason")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    UP_S_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NUM_WORKERS_WANTED_FIELD_NUMBER: _ClassVar[int]
    REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    WANTED_REASON_FIELD_NUMBER: _ClassVar[int]
    version: Version
    dispatcher_id: str
    up_s: float
    workers: _containers.RepeatedCompositeFieldContainer[WorkerStatus]
    jobs: _containers.RepeatedCompositeFieldContainer[JobStatus]
    num_workers_wanted: int
    reassignments: int
    wanted_reason: str
    def __init__(self, version: _Optional[_Union[Version, _Mapping]] = ..., dispatcher_id: _Optional[str] = ..., up_s: _Optional[float] = ..., workers: _Optional[_Iterable[_Union[WorkerStatus, _Mapping]]] = ..., jobs: _Optional[_Iterable[_Union[JobStatus, _Mapping]]] = ..., num_workers_wanted: _Optional[int] = ..., reassignments: _Optional[int] = ..., wanted_reason: _Optional[str] = ...) -> None: ...
