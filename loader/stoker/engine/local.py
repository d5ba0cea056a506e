"""Batches made by threads of this process."""

from __future__ import annotations

import os
import weakref
from typing import Any

from stoker import leaving
from stoker.backends.options import AUTO_BACKEND, Backend
from stoker.backends.registry import compile_ops
from stoker.batch.pinned import pool_for
from stoker.engine.chunk_source import chunks_of
from stoker.engine.engine import Engine, Limits
from stoker.engine.feed import Deal, Feed
from stoker.engine.opening import open_data
from stoker.engine.prepared import open_prepared, with_prepared
from stoker.engine.retries import RetryTally
from stoker.engine.stats import Counters, verdict
from stoker.engine.ticket import Ticket
from stoker.engine.tuning import default_concurrency, default_read_bytes, num_cores
from stoker.pipeline import Pipeline
from stoker.plan.resume import Position
from stoker.ranks import Rank
from stoker.state import OrderIdentity, identity
from stoker.storage.cache import CacheOptions, ChunkCache
from stoker.supply import Delivery, SupplyOptions


class LocalSupply:
    """The :class:`stoker.supply.Supply` of local mode: opens the data, and runs one engine at a time over them.

    Raises SpecError, StorageError, ShardError when it opens the source.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        rank: Rank,
        options: SupplyOptions,
        *,
        num_threads: int | None,
        read_bytes: int | None,
        cache: CacheOptions | None = None,
        backend: Backend = AUTO_BACKEND,
        device: str | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._program = compile_ops(pipeline.ops, backend)
        self._device = device
        self._tally = RetryTally()
        self._cache = None if cache is None else ChunkCache(cache)
        try:
            self._dataset = open_data(pipeline, self._tally, cache=self._cache)
        except BaseException:
            if self._cache is not None:
                self._cache.close()
            raise
        self._deal = Deal(pipeline, self._dataset.chunks.num_samples, rank)
        self._feed = Feed(self._deal, self._dataset.chunks)
        self._order = identity(pipeline, self._dataset.fingerprint, self._dataset.chunks.num_samples)
        self._limits = Limits(
            num_threads=num_cores() if num_threads is None else num_threads,
            read_bytes=read_bytes or default_read_bytes(self._feed),
            prefetch_bytes=options.prefetch_bytes,
            timeout_s=options.timeout_s,
            concurrency=default_concurrency(pipeline.source),
        )
        self._prepared = open_prepared(pipeline, self._program, self._dataset, self._limits.num_threads, cache)
        self._pin_memory = options.pin_memory
        self._pool = pool_for(pin_memory=self._pin_memory)
        self._counters = Counters()
        self._engine: Engine | None = None
        self._engine_at: Position | None = None
        self._engine_pid = 0
        self._finalizer: weakref.finalize[Any, Any] | None = None

    @property
    def order(self) -> OrderIdentity:
        return self._order

    def next(self, position: Position) -> Delivery:
        """See :class:`stoker.supply.Supply`."""
        engine = self._engine_here(position)
        self._engine_at = None  # after an error or Ctrl-C in here, nobody knows where it is
        ticket = engine.next()
        delivery = delivery_of(ticket)
        self._engine_at = self._deal.after(self._deal.taken(position, delivery.batch_index))
        return delivery

    def add_between(self, seconds: float) -> None:
        """See :class:`stoker.supply.Supply`."""
        self._counters.between_s += seconds

    def stats(self) -> dict[str, Any]:
        """See :class:`stoker.supply.Supply`."""
        storage = self._tally.stats()
        return {
            **self._counters.as_dict(),
            "retries": storage.retries,
            "throttled": storage.throttled,
            "storage": storage.as_dict(),
            "cache": {} if self._cache is None else self._cache.stats().as_dict(),
            "decoded_cache": {} if self._prepared is None else self._prepared.counts.as_dict(),
            "limited_by": verdict(self._counters),
        }

    def close(self) -> None:
        """See :class:`stoker.supply.Supply`."""
        self._tally.close()
        self._stop_engine()
        if self._prepared is not None:
            self._prepared.close()
        if self._cache is not None:
            self._cache.close()

    def _engine_here(self, position: Position) -> Engine:
        """The engine whose next batch is the one at ``position``."""
        if self._engine is None or self._engine_at != position or self._engine_pid != os.getpid():
            self._stop_engine()
            if self._engine_pid not in (0, os.getpid()):
                # a thread that the fork left behind may have held the lock of the old one
                self._pool = pool_for(pin_memory=self._pin_memory)
                self._prepared = self._prepared and self._prepared.again()
            chunks = chunks_of(self._dataset, self._feed, self._tally)
            program, source = with_prepared(self._prepared, self._program, chunks)
            engine = Engine(
                self._pipeline,
                self._dataset,
                source,
                program,
                self._pool,
                self._limits,
                self._counters,
                self._tally,
                first_epoch=position.epoch,
                device=self._device,
            )
            engine.start(self._feed.work(position))
            self._engine, self._engine_pid = engine, os.getpid()
            beside = [one for one in (self._prepared, self._cache) if one is not None]
            self._finalizer = leaving.close_later(self, engine, self._tally, *beside)
        return self._engine

    def _stop_engine(self) -> None:
        if self._engine is not None and self._engine_pid == os.getpid():  # a fork has none of its threads
            self._engine.close()
        if self._finalizer is not None:
            self._finalizer.detach()
        self._engine, self._engine_at, self._finalizer = None, None, None


def delivery_of(ticket: Ticket) -> Delivery:
    """What becomes of a ticket that is made."""
    assert ticket.batch is not None, "the engine hands out a batch or raises"
    work = ticket.work
    return Delivery(
        epoch=work.epoch,
        batch_index=work.batch_index,
        batch=ticket.batch,
        bad=tuple(ticket.bad),
        num_filtered=len(ticket.filtered),
        conversions=tuple(ticket.conversions.values()),
        device_fields=ticket.device_fields,
    )
