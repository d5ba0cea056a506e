"""A worker: its parts, and their life from start to stop."""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from dataclasses import asdict
from typing import Final

import pyarrow as pa

from stoker import __version__
from stoker.batch.pool import BufferPool
from stoker.engine.decoders import DecodePool
from stoker.errors import DeviceLostError, SpecError
from stoker.memory.arena import Arena
from stoker.processes.ending import EXIT_DEVICE_LOST
from stoker.storage.cache import CacheStats, ChunkCache
from stoker.storage.meter import StorageStats
from stoker.storage.rate import RateLimits
from stoker_proto.v1 import control_pb2
from stoker_service import backend
from stoker_service.addresses import joined
from stoker_service.fleet_counts import FleetCounts
from stoker_service.lifecycle import EXIT_GOOD
from stoker_service.options import WorkerOptions
from stoker_service.transport.arena_host import ArenaHost
from stoker_service.transport.host import host_id
from stoker_service.worker.agent import Agent
from stoker_service.worker.datasets import Datasets
from stoker_service.worker.fleet import Fleet
from stoker_service.worker.flight import FlightServer
from stoker_service.worker.keeper import Keeper
from stoker_service.worker.payloads import Payloads
from stoker_service.worker.processes import Processes
from stoker_service.worker.producer import Tools
from stoker_service.worker.producers import Producers
from stoker_service.worker.stats import NO_CACHE, WorkerStats

STOP_S: Final = 1.8
"""How long :meth:`WorkerServer.stop` may take."""

LEAVE_S: Final = 2.0
"""How long clients have for hanging up once they are told that the worker leaves."""

BEAT_S: Final = 1.0
"""Beat of streams until the dispatcher has said another."""

MIN_ARENA_BYTES: Final = 8 << 30
"""Of addresses, not of memory: so that one large batch beyond the budget finds room."""

MIN_IDLE_BYTES: Final = 256 << 20

_LOG: Final = logging.getLogger("stoker")


class WorkerServer:
    """Makes batches for whoever opens a stream. One life: ``start``, then ``drain`` or ``stop``; any thread may call.

    It sets nothing for the process as a whole, so it may run inside another program; :mod:`stoker.memory.malloc` is
    what our own processes do beside.
    """

    def __init__(self, options: WorkerOptions) -> None:
        """Raises SpecError or MissingDependencyError if the back-end cannot work here."""
        backend.check(options.made_by)
        self._options = options
        self._backend = options.made_by
        self._code = EXIT_GOOD
        self.life: Final = secrets.token_hex(8)
        self.worker_id: Final = options.worker_id or f"worker-{secrets.token_hex(4)}"
        self.host_id: Final = host_id()
        self.is_draining = False
        self.is_leaving = False
        self._lock = threading.Lock()
        self._is_stopping = False
        self._is_last = False
        self._ended = threading.Event()
        self._bytes_sent = 0
        self._send_s = 0.0
        self._location = ""
        self._flight: FlightServer | None = None
        self._agent: Agent | None = None
        self.arena: Arena | None = None
        self._arena_host: ArenaHost | None = None
        self._decode: DecodePool | None = None
        self._limits = RateLimits()
        self._cache = ChunkCache(options.cache) if options.cache is not None else None
        self._fleet = Fleet(self.worker_id, keeps_cache=self._cache is not None)
        self._datasets = Datasets(self._limits, self._cache, self._fleet, self._backend)
        self._keeper: Keeper | None = None
        self._producers: Producers | None = None
        self.processes: Final = Processes(options.num_processes, Payloads(options.memory_bytes))

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self, *, preload: bool = False) -> None:
        """Listen; returns when clients can reach it. The dispatcher is told by a thread, see :meth:`unready`.

        ``preload`` imports before what decoding needs; else the first batch does, and no beat is answered meanwhile.
        Raises SpecError if the port is taken, or if no host is known under which clients can reach it.
        """
        if preload:
            backend.preload(self._backend)
        options = self._options
        reached_host = options.reached_host
        if options.arena:
            self._open_arena()
        idle_bytes = max(MIN_IDLE_BYTES, options.memory_bytes // 2)
        pool = BufferPool(idle_bytes) if self.arena is None else BufferPool(idle_bytes, self.arena.allocate)
        self._decode = DecodePool(options.num_threads)
        self._producers = Producers(
            Tools(pool, self._decode, self.arena, options.cache, self._backend, self._on_device_lost),
            self._datasets,
            memory_bytes=options.memory_bytes,
            read_bytes=options.read_bytes,
            allow_code=options.allow_code,
        )
        self._keeper = Keeper(self._producers.opened)
        self._flight = self._listening()
        self._location = f"grpc://{joined(reached_host, self._flight.port)}"
        self._agent = Agent(
            options.address,
            self._described(),
            self._report,
            self.drain,
            self._on_last,
            self._stop_soon,
            self._limits,
            self._fleet.told,
        )
        self._agent.start()

    def drain(self) -> None:
        """Begin to end in good order; returns at once.

        No stream begins here any more. Those that are open go on until their clients have moved, ``drain_s`` at most;
        then they are told to leave after the batch in hand, and the worker ends. So at once if the dispatcher says that
        no other worker can take what this one has.
        """
        with self._lock:
            if self.is_draining or self._is_stopping:
                return
            self.is_draining = True
        _LOG.info("worker %s drains", self.worker_id)
        threading.Thread(target=self._drain, name="stoker-drain", daemon=True).start()

    def stop(self) -> None:
        """End now; within 2 s. Clients that do not hang up lose their connection when the process ends."""
        with self._lock:
            is_first, self._is_stopping = not self._is_stopping, True
            self.is_draining = self.is_leaving = True
        if is_first:
            try:
                self._stop(time.monotonic() + STOP_S)
            finally:
                self._ended.set()
        self._ended.wait(STOP_S)

    def wait(self) -> int:
        """Wait for its end; the exit code: 0 if it was asked to end, else it has lost its GPU, and is not stopped."""
        self._ended.wait()
        return self._code

    # -- what is ------------------------------------------------------------------------------------------------------

    @property
    def location(self) -> str:
        """Where clients reach it, such as ``grpc://10.0.0.7:4301``; empty before the start."""
        return self._location

    @property
    def beat_s(self) -> float:
        """Seconds of silence after which a stream beats."""
        return (self._agent.beat_s if self._agent is not None else 0.0) or BEAT_S

    @property
    def producers(self) -> Producers:
        assert self._producers is not None, "streams come after the start"
        return self._producers

    @property
    def keeper(self) -> Keeper:
        assert self._keeper is not None, "calls come after the start"
        return self._keeper

    @property
    def allows_code(self) -> bool:
        """Whether users' functions and datasets are run here."""
        return self._options.allow_code

    @property
    def arena_socket(self) -> str:
        """Where the arena's descriptor is handed out; empty without an arena."""
        return self._arena_host.socket_name if self._arena_host is not None else ""

    def unready(self) -> str | None:
        """Why no lane should come here; None if it is ready."""
        if self.is_draining:
            return "the worker drains"
        return "the worker is starting" if self._agent is None else self._agent.unready()

    def on_sent(self, num_bytes: int, seconds: float) -> None:
        """Called by streams."""
        with self._lock:
            self._bytes_sent += num_bytes
            self._send_s += seconds

    def stats(self) -> WorkerStats:
        """What it has done and holds."""
        found = self._producers.stats() if self._producers is not None else ()
        storage = self._datasets.storage()
        cache = self._cache.stats() if self._cache is not None else NO_CACHE
        name, device = backend.shown(self._backend)
        return WorkerStats(
            storage_s=sum(one.storage_s for one in found),
            decode_s=sum(one.decode_s for one in found),
            assemble_s=sum(one.assemble_s for one in found),
            send_s=self._send_s,
            queued_bytes=sum(one.queued_bytes for one in found),
            num_streams=self._flight.num_streams if self._flight is not None else 0,
            num_lanes=sum(len(one.lanes) for one in found),
            bad_samples=sum(one.bad_samples for one in found),
            batches=sum(one.batches for one in found),
            rows=sum(one.rows for one in found),
            bytes_sent=self._bytes_sent,
            bytes_in_arena=self.arena.used_bytes if self.arena is not None else 0,
            num_processes=self.processes.num_running,
            dataset_batches=self.processes.num_batches,
            payload_bytes=self.processes.payloads.num_bytes,
            producers=found,
            storage=storage,
            cache=cache,
            fleet=self._fleet_counts(cache, storage),
            backend=name,
            device=device,
        )

    def _fleet_counts(self, cache: CacheStats, storage: StorageStats) -> FleetCounts:
        peer_bytes, calls = self._fleet.counts()
        return FleetCounts(
            local_bytes=cache.bytes_ram + cache.bytes_disk,
            peer_bytes=peer_bytes,
            origin_bytes=storage.bytes,
            given_bytes=self._keeper.given_bytes if self._keeper is not None else 0,
            calls_served=calls["served"],
            calls_refused=calls["refused"],
            calls_late=calls["late"],
        )

    # -- inside -------------------------------------------------------------------------------------------------------

    def _open_arena(self) -> None:
        try:
            self.arena = Arena.create(max(4 * self._options.memory_bytes, MIN_ARENA_BYTES))
            self._arena_host = ArenaHost(self.arena)
        except OSError as error:
            _LOG.warning("no memory is shared with clients of this machine, batches go through sockets: %s", error)
            if self.arena is not None:
                self.arena.close()
            self.arena = None

    def _listening(self) -> FlightServer:
        place = joined(self._options.host, self._options.port)
        try:
            return FlightServer(self, f"grpc://{place}")
        except (pa.ArrowException, OSError) as error:
            self.stop()
            raise SpecError(
                f"a worker cannot listen at {place}: {error}; choose another port, or 0 for a free one"
            ) from None

    def _described(self) -> control_pb2.Worker:
        name, device = backend.shown(self._backend)
        return control_pb2.Worker(
            worker_id=self.worker_id,
            location=self._location,
            host_id=self.host_id,
            num_threads=self._options.num_threads,
            allows_code=self._options.allow_code,
            pid=os.getpid(),
            release=__version__,
            max_processes=self.processes.max_processes,
            keeps_cache=self._cache is not None,
            backend=name,
            device=device,
        )

    def _report(self) -> control_pb2.WorkerBeatRequest:
        now = self.stats()
        jobs = [
            control_pb2.WorkerJob(
                pipeline=one.pipeline, rows=one.rows, decode_s=one.decode_s + one.assemble_s, lanes=one.lanes
            )
            for one in now.producers
        ]
        jobs += [
            control_pb2.WorkerJob(pipeline=one.job, rows=one.rows, lanes=one.lanes) for one in self.processes.sums()
        ]
        return control_pb2.WorkerBeatRequest(
            worker_id=self.worker_id,
            jobs=jobs,
            is_draining=self.is_draining,
            num_streams=now.num_streams,
            queued_bytes=now.queued_bytes,
            bad_samples=now.bad_samples,
            num_processes=now.num_processes,
            members_version=self._fleet.view.members.version,
            fleet=control_pb2.FleetCounts(**asdict(now.fleet)),
        )

    def _drain(self) -> None:
        deadline_s = time.monotonic() + self._options.drain_s
        assert self._flight is not None, "what drains has started"
        assert self._agent is not None, "what drains has started"
        self._agent.beat_now(min(1.0, self._options.drain_s))
        self._flight.drain_datasets()
        if not self._flight.wait_for_streams(deadline_s, is_in_vain=lambda: self._is_last):
            self.is_leaving = True
            self._flight.leave()
            self._flight.wait_for_streams(time.monotonic() + LEAVE_S)
        self.stop()

    def _on_last(self) -> None:
        """Nobody can take what this worker has: its clients wait for another worker, or end."""
        self._is_last = True
        if self._flight is not None:
            self._flight.look_again()

    def _on_device_lost(self, error: DeviceLostError) -> None:
        """Have the process end as it stands: its clients see that it broke off, and make others do its work, with care.

        To leave in good order would not do: a sample that breaks every GPU would go from worker to worker for ever.
        """
        with self._lock:
            if self._is_stopping or self._code != EXIT_GOOD:
                return
            self._code = EXIT_DEVICE_LOST
            self.is_draining = True
        _LOG.error("worker %s ends, to be started again: %s", self.worker_id, error)
        self._ended.set()

    def _stop_soon(self) -> None:
        """Stop in a thread of its own: the agent's, which asks, is joined."""
        threading.Thread(target=self.stop, name="stoker-stop", daemon=True).start()

    def _stop(self, deadline_s: float) -> None:
        if self._agent is not None:
            self._agent.close(deadline_s)
        self._fleet.close()
        if self._keeper is not None:
            self._keeper.close()
        self._datasets.close()
        if self._flight is not None:
            self._flight.leave()
            self._flight.wait_for_streams(min(deadline_s, time.monotonic() + 0.5))
        self.processes.close(min(deadline_s, time.monotonic() + 0.5))
        if self._producers is not None:
            self._producers.close(deadline_s)
        if self._decode is not None:
            self._decode.close(deadline_s)
        if self._flight is not None:
            # It waits for all streams, also for those whose clients do not hang up.
            shutting = threading.Thread(target=self._flight.shutdown, name="stoker-shutdown", daemon=True)
            shutting.start()
            shutting.join(max(0.0, deadline_s - time.monotonic()))
        if self._cache is not None:
            self._cache.close()
        if self._arena_host is not None:
            self._arena_host.close()
        if self.arena is not None:
            self.arena.close()
