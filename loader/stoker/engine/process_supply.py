"""Batches made by worker processes of this machine."""

from __future__ import annotations

import os
import time
import weakref
from dataclasses import replace
from typing import Any

from stoker import leaving
from stoker.backends.options import AUTO_BACKEND, Backend
from stoker.backends.registry import compile_ops
from stoker.engine.engine import Limits
from stoker.engine.feed import Deal, Feed
from stoker.engine.killers import Killers
from stoker.engine.opening import open_data
from stoker.engine.process_share import Share
from stoker.engine.process_team import Team
from stoker.engine.process_wire import Counts, Made, Setup
from stoker.engine.retries import RetryTally
from stoker.engine.stats import Counters, verdict
from stoker.engine.tuning import default_concurrency, default_read_bytes, num_cores
from stoker.errors import ClosedError
from stoker.ops.cache import Cache
from stoker.pipeline import Pipeline
from stoker.plan.resume import Position
from stoker.processes.launch import warm
from stoker.processes.payload import pack
from stoker.ranks import Rank
from stoker.state import OrderIdentity, identity
from stoker.storage.cache import CacheOptions
from stoker.supply import Delivery, SupplyOptions

_NO_DEADLINE_S = 1e8
"""The workers wait as long as it takes; the trainer has the deadline."""

_IDLE_BYTES = 256 << 20
"""Warm memory that all workers together keep for batches to come."""

_MIN_IDLE_BYTES = 64 << 20


class ProcessSupply:
    """The :class:`stoker.supply.Supply` of ``num_workers`` processes, which start with the first batch.

    The threads and the bytes for chunks are shared out among them. The data are opened here first, so that the workers
    find the index. Raises SpecError, also for a function that cannot be sent, StorageError, ShardError.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        rank: Rank,
        options: SupplyOptions,
        *,
        num_workers: int,
        num_threads: int | None,
        read_bytes: int | None,
        cache: CacheOptions | None = None,
        backend: Backend = AUTO_BACKEND,
    ) -> None:
        compile_ops(pipeline.ops, backend)  # raises here what would fail there, and imports what all workers will need:
        warm()  # they are forked from a process that has imported the same
        self._payload = pack(pipeline, "pipeline")
        self._tally = RetryTally()
        dataset = open_data(pipeline, self._tally)
        deal = Deal(pipeline, dataset.chunks.num_samples, rank)
        self._order = identity(pipeline, dataset.fingerprint, dataset.chunks.num_samples)
        self._share = Share(deal, num_workers)
        self._limits = Limits(
            num_threads=num_cores() if num_threads is None else num_threads,
            read_bytes=read_bytes or self._read_bytes(default_read_bytes(Feed(deal, dataset.chunks))),
            prefetch_bytes=options.prefetch_bytes,
            timeout_s=options.timeout_s,
            concurrency=default_concurrency(pipeline.source),
        )
        self._cache = cache
        self._backend = backend
        self._killers = Killers()
        self._is_prepared = any(isinstance(op, Cache) for op in pipeline.ops)
        self._counters = Counters()
        self._former_counts = Counts()
        self._batch_bytes = 0
        self._team: Team | None = None
        self._team_pid = 0
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._is_closed = False

    @property
    def order(self) -> OrderIdentity:
        return self._order

    def next(self, position: Position) -> Delivery:
        """See :class:`stoker.supply.Supply`."""
        begun_s = time.monotonic()
        team = self._team_here()
        is_start = not team.is_at(position)
        made = team.next(position, self._num_ahead())
        self._count(made, begun_s, is_start=is_start)
        return made.delivery

    def add_between(self, seconds: float) -> None:
        """See :class:`stoker.supply.Supply`."""
        self._counters.between_s += seconds

    def stats(self) -> dict[str, Any]:
        """See :class:`stoker.supply.Supply`."""
        done = self._former_counts if self._team is None else self._former_counts + self._team.counts()
        storage = self._tally.stats() + done.storage
        return {
            **self._counters.as_dict(),
            "reads": done.reads,
            "bytes_read": done.bytes_read,
            "read_s": done.read_s,
            "decode_s": done.decode_s,
            "assemble_s": done.assemble_s,
            "retries": storage.retries,
            "throttled": storage.throttled,
            "storage": storage.as_dict(),
            "cache": {} if self._cache is None else done.cache.as_dict(),
            "decoded_cache": done.prepared.as_dict() if self._is_prepared else {},
            "limited_by": verdict(self._counters),
        }

    def close(self) -> None:
        """See :class:`stoker.supply.Supply`."""
        self._is_closed = True
        self._tally.close()
        if self._finalizer is not None:
            self._finalizer.detach()
        if self._team is not None and self._team_pid == os.getpid():
            self._team.close()
        self._payload.close()

    def _read_bytes(self, of_all_lanes: int) -> int:
        """Room for the open windows of all workers: a lane that goes round has one in each that takes part."""
        share = self._share
        return of_all_lanes * share.num_lanes_each * share.num_workers // share.num_lanes

    def _team_here(self) -> Team:
        """The workers of this process: those of its parent are not for a fork."""
        self._check_open()
        if self._team is None or self._team_pid != os.getpid():
            if self._team is not None:
                self._former_counts += self._team.counts()
            order = self._order
            timeout_s = self._limits.timeout_s
            self._team = Team(self._share, self._setups(), self._payload, order.dataset, timeout_s, self._killers)
            self._team_pid = os.getpid()
            self._finalizer = leaving.close_later(self, self._team, self._tally)
            try:
                self._check_open()
            except ClosedError:  # by another thread, while the workers were started
                self._team.close()
                raise
        return self._team

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the loader was closed")

    def _setups(self) -> list[Setup]:
        num_workers = self._share.num_workers
        limits = replace(
            self._limits,
            num_threads=max(1, self._limits.num_threads // num_workers),
            read_bytes=self._limits.read_bytes // num_workers,
            timeout_s=_NO_DEADLINE_S,
        )
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return [
            Setup(
                worker_index=worker_index,
                num_workers=num_workers,
                rank=self._share.deal.rank,
                limits=limits,
                arena_bytes=memory_bytes // num_workers,
                idle_bytes=max(_IDLE_BYTES // num_workers, _MIN_IDLE_BYTES),
                cache=None
                if self._cache is None
                else replace(self._cache, ram_bytes=self._cache.ram_bytes // num_workers),
                backend=self._backend,
            )
            for worker_index in range(num_workers)
        ]

    def _num_ahead(self) -> int:
        """Batches that may be made ahead: as many as fit, but one for each worker."""
        fitting = self._limits.prefetch_bytes // self._batch_bytes if self._batch_bytes else 0
        return max(2, self._share.num_workers, fitting)

    def _count(self, made: Made, begun_s: float, *, is_start: bool) -> None:
        now_s = time.monotonic()
        reading_s = min(max(made.ready_s - begun_s, 0.0), now_s - begun_s)
        counters, batch = self._counters, made.delivery.batch
        if is_start:
            counters.start_s += now_s - begun_s
        else:
            counters.wait_read_s += reading_s
            counters.wait_decode_s += now_s - begun_s - reading_s
        counters.batches += 1
        counters.samples += batch.num_rows
        counters.bytes_made += batch.nbytes
        self._batch_bytes = max(self._batch_bytes, batch.nbytes)
