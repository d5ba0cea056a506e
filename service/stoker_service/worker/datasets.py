"""The data sets that a worker has open, each opened once for all who ask."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import OrderedDict
from concurrent import futures
from concurrent.futures import Future
from dataclasses import asdict
from typing import Final

from stoker.backends.options import AUTO_BACKEND, Backend
from stoker.backends.registry import compile_ops
from stoker.engine.opening import open_data
from stoker.engine.retries import RetryTally
from stoker.errors import ClosedError, StokerError
from stoker.formats.index import IndexProgress
from stoker.pipeline import Pipeline
from stoker.storage.cache import ChunkCache
from stoker.storage.meter import StorageStats
from stoker.storage.rate import RateLimits
from stoker_service.worker.fleet import Fleet
from stoker_service.worker.peers import FleetPeers
from stoker_service.worker.producer import Opened

MAX_OPEN: Final = 16
"""Data sets kept; opening one again means reading its index again."""


class Opening:
    """A data set that is open, or on the way there. ``progress`` says what it is busy with."""

    def __init__(self, limits: RateLimits | None) -> None:
        self.result: Future[Opened] = Future()
        self.tally = RetryTally(limits)
        self.progress = "the index of the data set is read"

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is open or could not be opened; False if that is not so in time."""
        return bool(futures.wait([self.result], timeout=timeout_s).done)

    def on_progress(self, found: IndexProgress) -> None:
        """Called from threads that scan."""
        shards = f"{found.shards_done} of {found.num_shards} shards scanned"
        self.progress = f"the data set has no index that is up to date: {shards}, {found.rows_done} samples so far"


class Datasets:
    """Opens data sets in threads of their own. Safe for all threads.

    All keep to the same ``limits``, and read through the same ``cache`` and from the other workers of the ``fleet``.
    """

    def __init__(
        self,
        limits: RateLimits | None = None,
        cache: ChunkCache | None = None,
        fleet: Fleet | None = None,
        backend: Backend = AUTO_BACKEND,
    ) -> None:
        self._limits = limits
        self._backend = backend
        self._cache = cache
        self._fleet = fleet
        self._lock = threading.Lock()
        self._openings: OrderedDict[str, Opening] = OrderedDict()  # least recently used first
        self._tallies: list[RetryTally] = []
        self._is_closed = False

    def open(self, pipeline: Pipeline) -> Opening:
        """The data set of a pipeline; whoever asks while it is being opened waits for the same result.

        The result raises what :func:`stoker.engine.opening.open_data` raises; who asks then tries anew.
        """
        name = _name_of(pipeline)
        with self._lock:
            if self._is_closed:
                raise ClosedError("the worker has stopped")
            found = self._openings.get(name)
            if found is None:
                found = self._openings[name] = Opening(self._limits)
                self._tallies.append(found.tally)
                threading.Thread(
                    target=self._run, args=(name, found, pipeline), name="stoker-open", daemon=True
                ).start()
            self._openings.move_to_end(name)
            while len(self._openings) > MAX_OPEN:
                self._openings.popitem(last=False)
        return found

    def forget(self, pipeline: Pipeline, stale: Opening) -> None:
        """Make the next :meth:`open` look at the data anew; ``stale`` is what was found to be out of date."""
        with self._lock:
            if self._openings.get(_name_of(pipeline)) is stale:
                del self._openings[_name_of(pipeline)]

    def storage(self) -> StorageStats:
        """What storage was asked for since the worker started."""
        with self._lock:
            tallies = list(self._tallies)
        return sum((one.stats() for one in tallies), StorageStats())

    def close(self) -> None:
        """End the waits for retries, now and from now on; reads in hand go on for as long as they take."""
        with self._lock:
            self._is_closed = True
            for tally in self._tallies:
                tally.close()

    def _opened(self, pipeline: Pipeline, opening: Opening) -> Opened:
        peers = FleetPeers(self._fleet, pipeline) if self._fleet is not None else None
        dataset = open_data(pipeline, opening.tally, opening.on_progress, cache=self._cache, peers=peers)
        if peers is not None:
            peers.opened(dataset.fingerprint)
        return Opened(dataset, opening.tally)

    def _run(self, name: str, opening: Opening, pipeline: Pipeline) -> None:
        try:
            opened = self._opened(pipeline, opening)
            with contextlib.suppress(StokerError):  # who makes a producer of it hears of it
                compile_ops(
                    pipeline.ops, self._backend
                )  # here, where streams beat meanwhile: it imports libraries, which takes long
        except BaseException as error:  # noqa: BLE001  # the thread's outermost loop: it goes to all who wait
            with self._lock:
                if self._openings.get(name) is opening:
                    del self._openings[name]
            opening.result.set_exception(error)
        else:
            opening.result.set_result(opened)


def _name_of(pipeline: Pipeline) -> str:
    """Equal for pipelines that read the same data in the same chunks with the same rights."""
    source = pipeline.source
    return json.dumps([type(source).__name__, asdict(source), pipeline.shuffle == "full"], sort_keys=True, default=str)
