"""Options of the service's processes: one frozen object for each kind."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from stoker.errors import SpecError
from stoker_service import addresses
from stoker_service.addresses import DEFAULT_PORT, WILDCARDS, Address

if TYPE_CHECKING:
    from stoker.backends.options import Backend
    from stoker.storage.cache import CacheOptions

Options = TypeVar("Options", "DispatcherOptions", "WorkerOptions", "UpOptions")
Engine = Literal["processes", "ray"]

DEFAULT_BEAT_S = 1.0
DEFAULT_FORGET_S = 60.0
DEFAULT_DRAIN_S = 20.0
DEFAULT_MEMORY_BYTES = 1 << 30
DEFAULT_DEVICE_BYTES = 2 << 30
LOOPBACK = "127.0.0.1"

_MIN_MEMORY_BYTES = 1 << 20
_WORKER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


_OF_WORKERS = (
    "host",
    "memory_bytes",
    "read_bytes",
    "allow_code",
    "max_processes",
    "drain_s",
    "arena",
    "cache_dir",
    "cache_bytes",
    "cache_ram_bytes",
    "backend",
    "placement",
    "device_bytes",
    "http_host",
)
"""Options of a whole service that its workers have under the same names."""


def _num_cores() -> int:
    from stoker.engine.tuning import num_cores

    return num_cores()


@dataclass(frozen=True, slots=True)
class DispatcherOptions:
    """Options of a dispatcher.

    Args:
        host, port: where it listens; port 0 takes a free one.
        beat_s: seconds between two beats of a peer; one that misses three is dead.
        forget_s: seconds until a dead worker, or a job whose clients are gone, is forgotten.
        until_jobs_end: end once there was a job and the last one has ended.
        http_host, http_port: where ``/healthz``, ``/readyz`` and ``/metrics`` are served; nowhere if the port is None.
    """

    host: str = LOOPBACK
    port: int = DEFAULT_PORT
    beat_s: float = DEFAULT_BEAT_S
    forget_s: float = DEFAULT_FORGET_S
    until_jobs_end: bool = False
    http_host: str = LOOPBACK
    http_port: int | None = None

    def __post_init__(self) -> None:
        _check_host("host", self.host)
        _check_port("port", self.port)
        _check_beat(self.beat_s, self.forget_s)
        _check_http(self.http_host, self.http_port)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Options of a worker.

    Args:
        dispatcher: where the dispatcher listens, as ``stoker://HOST:PORT``.
        host, port: where its Flight server listens; port 0 takes a free one.
        advertise: the host under which clients reach it; None means ``host``. See :attr:`reached_host`.
        num_threads: decoding threads; one per core unless told otherwise.
        memory_bytes: batches made and in the making, at most, beyond what the next ones need.
        read_bytes: chunks held and read ahead, at most, beyond what the next batches need; None means as the engine
            chooses for the lanes it has.
        allow_code: run users' functions and datasets that clients send.
        max_processes: processes for torch datasets, at most; as many as ``num_threads`` if None.
        drain_s: seconds that a draining worker gives its clients to move, at most.
        arena: share batches with clients on this machine through memory.
        cache_dir: folder of the local disk where ranges of objects are kept, for the whole fleet; all workers of a
            machine may share it. None keeps nothing on disk.
        cache_bytes: what is kept there, at most; half of what is free if None.
        cache_ram_bytes: what is kept in memory, at most, for the whole fleet.
        backend, device, placement, device_bytes: what makes samples, and where it may work, as in
            :class:`stoker.Backend`; ``placement`` is one for all ops, or ``Op=place`` pairs with commas between. All
            pipelines share the device's bytes. See :attr:`made_by`.
        worker_id: its name, unique in the service; a random one if None.
        http_host, http_port: as in :class:`DispatcherOptions`.
    """

    dispatcher: str
    host: str = LOOPBACK
    port: int = 0
    advertise: str | None = None
    num_threads: int = field(default_factory=_num_cores)
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    read_bytes: int | None = None
    allow_code: bool = False
    max_processes: int | None = None
    drain_s: float = DEFAULT_DRAIN_S
    arena: bool = True
    cache_dir: str | None = None
    cache_bytes: int | None = None
    cache_ram_bytes: int = 0
    backend: str = "auto"
    device: str = "cpu"
    placement: str = "auto"
    device_bytes: int = DEFAULT_DEVICE_BYTES
    worker_id: str | None = None
    http_host: str = LOOPBACK
    http_port: int | None = None

    def __post_init__(self) -> None:
        addresses.parse(self.dispatcher, option="dispatcher")
        _check_host("host", self.host)
        _check_port("port", self.port)
        _check_advertised(self.advertise)
        _check_threads(self.num_threads)
        _check_memory(self.memory_bytes, self.read_bytes)
        _check_processes(self.max_processes)
        _check_seconds("drain_s", self.drain_s, least=0.0)
        _check_cache(self.cache_dir, self.cache_bytes, self.cache_ram_bytes)
        _backend(self)
        if self.worker_id is not None and not _WORKER_ID.fullmatch(self.worker_id):
            raise SpecError(
                f"worker_id={self.worker_id!r}: expected up to 63 letters, digits, '.', '_' or '-', the first a letter "
                "or a digit"
            )
        _check_http(self.http_host, self.http_port)

    @property
    def address(self) -> Address:
        """The dispatcher's address."""
        return addresses.parse(self.dispatcher, option="dispatcher")

    @property
    def num_processes(self) -> int:
        """How many processes for torch datasets it may have."""
        if not self.allow_code:
            return 0
        return self.num_threads if self.max_processes is None else self.max_processes

    @property
    def cache(self) -> CacheOptions | None:
        """The cache that it keeps; None without a budget for one."""
        if self.cache_dir is None and not self.cache_ram_bytes:
            return None
        from stoker.storage.cache import CacheOptions

        return CacheOptions(self.cache_dir, self.cache_bytes, self.cache_ram_bytes)

    @property
    def made_by(self) -> Backend:
        """The back-end that makes its samples."""
        return _backend(self)

    @property
    def reached_host(self) -> str:
        """The host to tell clients; where ``host`` is all interfaces, the one that faces the dispatcher."""
        if self.advertise is not None:
            return self.advertise
        return addresses.reached_from(self.address) if self.host in WILDCARDS else self.host


@dataclass(frozen=True, slots=True)
class UpOptions:
    """Options of a whole service started by one command.

    Args:
        num_workers: workers to keep alive.
        host, port, beat_s, forget_s, until_jobs_end: the dispatcher's.
        advertise: the host under which clients reach the workers; None means ``host``, and where that is all
            interfaces, the one that faces the outside.
        num_threads: decoding threads of each worker; None means that the workers share the cores.
        memory_bytes: as in :class:`WorkerOptions`, of each worker.
        read_bytes, allow_code, max_processes, drain_s, arena: the workers'.
        cache_dir, cache_bytes, cache_ram_bytes: as in :class:`WorkerOptions`; the workers of a machine share the folder
            and its bytes, each has the memory.
        backend, device, placement, device_bytes: as in :class:`WorkerOptions`, of each worker; with ``device="cuda"``
            the workers go round the GPUs: worker ``i`` has GPU ``i`` modulo their number.
        engine: what runs them: child processes, or actors of a Ray cluster.
        http_host, http_port: as in :class:`DispatcherOptions`; worker ``i`` has the port ``http_port + 1 + i``, from 0,
            or at a free port if it is 0.
    """

    num_workers: int = 1
    host: str = LOOPBACK
    port: int = DEFAULT_PORT
    beat_s: float = DEFAULT_BEAT_S
    forget_s: float = DEFAULT_FORGET_S
    until_jobs_end: bool = False
    advertise: str | None = None
    num_threads: int | None = None
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    read_bytes: int | None = None
    allow_code: bool = False
    max_processes: int | None = None
    drain_s: float = DEFAULT_DRAIN_S
    arena: bool = True
    cache_dir: str | None = None
    cache_bytes: int | None = None
    cache_ram_bytes: int = 0
    backend: str = "auto"
    device: str = "cpu"
    placement: str = "auto"
    device_bytes: int = DEFAULT_DEVICE_BYTES
    engine: Engine = "processes"
    http_host: str = LOOPBACK
    http_port: int | None = None

    def __post_init__(self) -> None:
        if self.num_workers < 1:
            raise SpecError(
                f"num_workers={self.num_workers}: expected 1 or more; for a dispatcher alone: stoker dispatcher"
            )
        if self.engine not in get_args(Engine):
            close = difflib.get_close_matches(str(self.engine), get_args(Engine), n=1, cutoff=0.3)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise SpecError(f"engine={self.engine!r}: expected one of {', '.join(get_args(Engine))}{hint}")
        _check_host("host", self.host)
        _check_port("port", self.port)
        _check_beat(self.beat_s, self.forget_s)
        _check_advertised(self.advertise)
        if self.num_threads is not None:
            _check_threads(self.num_threads)
        _check_memory(self.memory_bytes, self.read_bytes)
        _check_processes(self.max_processes)
        _check_seconds("drain_s", self.drain_s, least=0.0)
        _check_cache(self.cache_dir, self.cache_bytes, self.cache_ram_bytes)
        _backend(self)
        if self.engine == "ray" and self.device not in {"cpu", "cuda"}:
            raise SpecError(f"device={self.device!r}: Ray chooses each worker's GPU; expected 'cuda', or 'cpu'")
        _check_http(self.http_host, self.http_port)
        if self.http_port and self.http_port + self.num_workers > 65535:
            raise SpecError(f"http_port={self.http_port}: expected room for {self.num_workers} workers' ports after it")

    @property
    def threads_each(self) -> int:
        """Decoding threads of each worker."""
        return max(1, _num_cores() // self.num_workers) if self.num_threads is None else self.num_threads

    @property
    def reached(self) -> Address:
        """The address to tell clients."""
        return Address(self._reached_host() or self.host, self.port)

    def _reached_host(self) -> str | None:
        """The host to tell clients; None if it is the one where all listen."""
        if self.advertise is not None or self.host not in WILDCARDS:
            return self.advertise
        return addresses.outward_host()

    @property
    def made_by(self) -> Backend:
        """The back-end of each worker, whichever GPU it gets."""
        return _backend(self)

    def for_dispatcher(self) -> DispatcherOptions:
        """The options of this service's dispatcher."""
        shared = ("host", "port", "beat_s", "forget_s", "until_jobs_end", "http_host", "http_port")
        return DispatcherOptions(**{name: getattr(self, name) for name in shared})

    def for_worker(self, index: int, dispatcher: Address) -> WorkerOptions:
        """The options of worker ``index`` of this service, whose dispatcher has been found to listen there."""
        from stoker_service import backend

        named = {name: getattr(self, name) for name in _OF_WORKERS}
        near = Address(LOOPBACK, dispatcher.port) if self.host in WILDCARDS else dispatcher
        http_port = self.http_port + 1 + index if self.http_port else self.http_port
        return WorkerOptions(
            str(near),
            num_threads=self.threads_each,
            advertise=self._reached_host(),
            device=backend.spread(self.device, index),
            http_port=http_port,
            **named,
        )


def read_options(kind: type[Options], values: Mapping[str, Any]) -> Options:
    """Make options from names and values; a name that ``kind`` does not have is an error with a suggestion."""
    known = [entry.name for entry in fields(kind)]
    for name in values:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; it has {', '.join(known)}"
            raise SpecError(f"{kind.__name__} has no option {name!r}{hint}")
    return kind(**values)


def _backend(options: WorkerOptions | UpOptions) -> Backend:
    from stoker_service.backend import read_backend

    return read_backend(options.backend, options.device, options.placement, options.device_bytes)


def _check_host(name: str, host: str) -> None:
    if not host or any(letter.isspace() or letter in "/@" for letter in host):
        raise SpecError(f"{name}={host!r}: expected a host name or an IP address, such as '127.0.0.1' or '0.0.0.0'")


def _check_advertised(host: str | None) -> None:
    if host is None:
        return
    _check_host("advertise", host)
    if host in WILDCARDS:
        raise SpecError(f"advertise={host!r}: expected one host that clients can reach, such as this machine's name")


def _check_port(name: str, port: int) -> None:
    if not 0 <= port <= 65535:
        raise SpecError(f"{name}={port}: expected a port from 1 to 65535, or 0 for a free one")


def _check_http(host: str, port: int | None) -> None:
    _check_host("http_host", host)
    if port is not None:
        _check_port("http_port", port)


def _check_beat(beat_s: float, forget_s: float) -> None:
    _check_seconds("beat_s", beat_s, least=0.01, most=60.0)
    _check_seconds("forget_s", forget_s, least=0.0)
    if forget_s < 3 * beat_s:
        raise SpecError(
            f"forget_s={forget_s:g}: expected at least three beats (beat_s={beat_s:g}), after which a peer is dead; "
            f"take {3 * beat_s:g} or more"
        )


def _check_seconds(name: str, value: float, *, least: float, most: float = 86_400.0) -> None:
    if not math.isfinite(value) or not least <= value <= most:
        raise SpecError(f"{name}={value:g}: expected {least:g} to {most:g} seconds")


def _check_threads(num_threads: int) -> None:
    if not 1 <= num_threads <= 1024:
        raise SpecError(f"num_threads={num_threads}: expected 1 to 1024; this machine has {_num_cores()} cores")


def _check_processes(max_processes: int | None) -> None:
    if max_processes is not None and not 0 <= max_processes <= 4096:
        raise SpecError(f"max_processes={max_processes}: expected 0 to 4096; 0 for no torch datasets")


def _check_memory(memory_bytes: int, read_bytes: int | None) -> None:
    for name, value in (("memory_bytes", memory_bytes), ("read_bytes", read_bytes)):
        if value is not None and value < _MIN_MEMORY_BYTES:
            raise SpecError(f"{name}={value}: expected {_MIN_MEMORY_BYTES} (1 MiB) or more; it counts bytes")


def _check_cache(folder: str | None, disk_bytes: int | None, ram_bytes: int) -> None:
    if folder == "":
        raise SpecError("cache_dir='': expected a folder of the local disk, such as '/nvme/stoker'")
    if disk_bytes is not None and folder is None:
        raise SpecError(f"cache_bytes={disk_bytes}: expected a folder to keep them in as well; give cache_dir")
    for name, value in (("cache_bytes", disk_bytes), ("cache_ram_bytes", ram_bytes or None)):
        if value is not None and value < _MIN_MEMORY_BYTES:
            raise SpecError(f"{name}={value}: expected {_MIN_MEMORY_BYTES} (1 MiB) or more; it counts bytes")
