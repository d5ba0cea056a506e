"""The producers of a worker: found by what they make, bounded together, kept a while when nobody uses them."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from stoker.backends.program import Program
from stoker.backends.registry import compile_ops
from stoker.engine.killers import Killers
from stoker.errors import ClosedError, DataError, SpecError
from stoker.pipeline import Pipeline
from stoker_proto.v1 import stream_pb2
from stoker_service.transport import code
from stoker_service.worker.datasets import Datasets, Opening
from stoker_service.worker.producer import Opened, Producer, Tools
from stoker_service.worker.stats import ProducerStats, added

LINGER_S: Final = 10.0
"""How long a producer is kept after its last stream: clients that move or reconnect come back within a second."""

MAX_IDLE: Final = 4
MAX_PIPELINES: Final = 64
MAX_PAST: Final = 1024
CLOSE_S: Final = 1.5

Name = tuple[str, bytes, str]
"""Fingerprint of the pipeline, digest of its code, fingerprint of the data set.

The first does not follow all that users' functions refer to: two pipelines may have one fingerprint and different code.
"""

OnBusy = Callable[[str], bool]
"""Told again and again what is waited for; False ends the wait with ClosedError."""


@dataclass(slots=True)
class _Kept:
    producer: Producer
    num_users: int = 0
    idle_since_s: float = 0.0


class Producers:
    """Owns all producers, and one thread (``stoker-keep``) that closes those that nobody has used for a while.

    The memory for batches, and that for chunks if it was given, is shared evenly by those that have streams.
    """

    def __init__(
        self,
        tools: Tools,
        datasets: Datasets,
        *,
        memory_bytes: int,
        read_bytes: int | None,
        allow_code: bool,
        linger_s: float = LINGER_S,
    ) -> None:
        self._tools = tools
        self._datasets = datasets
        self._memory_bytes = memory_bytes
        self._read_bytes = read_bytes
        self._allow_code = allow_code
        self._linger_s = linger_s
        self._changed = threading.Condition()
        self._kept: dict[Name, _Kept] = {}
        self._pipelines: OrderedDict[bytes, Pipeline] = OrderedDict()  # least recently used first
        self._killers: OrderedDict[Name, Killers] = OrderedDict()  # the same; they outlive the producers
        self._past: OrderedDict[str, ProducerStats] = OrderedDict()
        self._is_closed = False
        self._thread = threading.Thread(target=self._keep, name="stoker-keep", daemon=True)
        self._thread.start()

    def pipeline(self, message: stream_pb2.Pipeline) -> Pipeline:
        """Read a pipeline that a client sent. Raises SpecError, which names --allow-code if that is what it lacks."""
        digest = _digest(message.SerializeToString(deterministic=True))
        with self._changed:
            found = self._pipelines.get(digest)
            if found is not None:
                self._pipelines.move_to_end(digest)
                return found
        found = code.unpack(message, allow_code=self._allow_code)
        if not message.code and found.fingerprint != message.fingerprint:
            raise SpecError(
                f"the pipeline's fingerprint is {found.fingerprint} here and {message.fingerprint or 'missing'} at the "
                "client: the two run releases that differ in what a pipeline means; use one release"
            )
        with self._changed:
            self._pipelines[digest] = found
            if len(self._pipelines) > MAX_PIPELINES:
                self._pipelines.popitem(last=False)
        return found

    def opening(self, pipeline: Pipeline) -> Opening:
        """The data set of a pipeline on its way. Raises ClosedError."""
        return self._datasets.open(pipeline)

    def opened(self, pipeline: Pipeline, expected: str, beat_s: float, on_busy: OnBusy) -> Opened:
        """Open the data set of a pipeline, looking again if it is not the one with the fingerprint ``expected``.

        ``on_busy`` is called each ``beat_s``. Raises what opening raises, ClosedError, and DataError if the data set is
        another one after all; an empty ``expected`` fits any.
        """
        opening = self._datasets.open(pipeline)
        found = _awaited(opening, beat_s, on_busy)
        if expected not in ("", found.dataset.fingerprint):
            self._datasets.forget(pipeline, opening)
            found = _awaited(self._datasets.open(pipeline), beat_s, on_busy)
        if expected not in ("", found.dataset.fingerprint):
            raise DataError(
                f"the data set that this worker finds has the fingerprint {found.dataset.fingerprint}, the job's has "
                f"{expected}: the data have changed since the job began, or other data lie at the same place on the "
                f"worker's machine. Source: {pipeline.source!r}"
            )
        return found

    def acquire(self, message: stream_pb2.Pipeline, pipeline: Pipeline, opened: Opened) -> Producer:
        """The producer of a pipeline, sent as ``message``, over a data set; to be given back by :meth:`release`.

        Raises ClosedError.
        """
        name = message.fingerprint, _digest(message.code), opened.dataset.fingerprint
        with self._changed:
            found = self._used(name)
        if found is not None:
            return found
        program = compile_ops(pipeline.ops, self._tools.backend)  # without the lock: it may import, and beats need it
        with self._changed:
            found = self._used(name)  # another thread's, made meanwhile
            if found is None:
                found = self._made(name, pipeline, opened, program)
                self._kept[name] = _Kept(found, num_users=1)
                self._share()
            return found

    def release(self, producer: Producer) -> None:
        """One user less; the last one's end begins the time for which the producer is still kept."""
        with self._changed:
            for kept in self._kept.values():
                if kept.producer is producer:
                    kept.num_users -= 1
                    kept.idle_since_s = time.monotonic()
            self._share()
            self._changed.notify_all()

    def stats(self) -> tuple[ProducerStats, ...]:
        """One for each pipeline that was ever used here, those whose producers are closed included."""
        with self._changed:
            found = dict(self._past)
            for kept in self._kept.values():
                now = kept.producer.stats()
                found[now.pipeline] = added(found[now.pipeline], now) if now.pipeline in found else now
        return tuple(found.values())

    def close(self, deadline_s: float) -> None:
        """Close all producers by the deadline (of the monotonic clock); their streams end with ClosedError."""
        with self._changed:
            self._is_closed = True
            producers = [kept.producer for kept in self._kept.values()]
            self._changed.notify_all()
        closing = [threading.Thread(target=one.close, args=(deadline_s,), daemon=True) for one in producers]
        for thread in closing:
            thread.start()
        for thread in (*closing, self._thread):
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _used(self, name: Name) -> Producer | None:
        """The producer of this name, with one user more; None if there is none that works. Raises ClosedError."""
        if self._is_closed:
            raise ClosedError("the worker has stopped")
        kept = self._kept.get(name)
        if kept is None:
            return None
        if kept.producer.failure is not None:
            broken = self._take_out(name)
            threading.Thread(target=broken.close, args=(time.monotonic() + CLOSE_S,), daemon=True).start()
            return None
        kept.num_users += 1
        self._share()
        return kept.producer

    def _made(self, name: Name, pipeline: Pipeline, opened: Opened, program: Program) -> Producer:
        killers = self._killers.setdefault(name, Killers())
        self._killers.move_to_end(name)
        if len(self._killers) > MAX_PIPELINES:
            self._killers.popitem(last=False)
        return Producer(
            name[0],
            pipeline,
            opened,
            program,
            self._tools,
            memory_bytes=self._memory_bytes,
            read_bytes=self._read_bytes,
            killers=killers,
        )

    def _share(self) -> None:
        used = [kept.producer for kept in self._kept.values() if kept.num_users]
        for producer in used:
            read_bytes = None if self._read_bytes is None else self._read_bytes // len(used)
            producer.allow(self._memory_bytes // len(used), read_bytes)

    # -- the thread that closes ---------------------------------------------------------------------------------------

    def _keep(self) -> None:
        while (overdue := self._overdue()) is not None:
            for producer in overdue:
                producer.close(time.monotonic() + CLOSE_S)

    def _overdue(self) -> list[Producer] | None:
        """Wait for producers that were kept long enough, and take them out; None at the end."""
        with self._changed:
            while not self._is_closed:
                now_s = time.monotonic()
                names = self._idle()
                over = [name for name in names if now_s - self._kept[name].idle_since_s >= self._linger_s]
                over = over or names[:-MAX_IDLE]
                if over:
                    return [self._take_out(name) for name in over]
                first_s = min((self._kept[name].idle_since_s for name in names), default=None)
                self._changed.wait(None if first_s is None else first_s + self._linger_s - now_s)
        return None

    def _idle(self) -> list[Name]:
        """The producers without users, the longest idle first."""
        idle = [(kept.idle_since_s, name) for name, kept in self._kept.items() if not kept.num_users]
        return [name for _, name in sorted(idle)]

    def _take_out(self, name: Name) -> Producer:
        producer = self._kept.pop(name).producer
        now = replace(producer.stats(), lanes=(), num_streams=0, queued_bytes=0)
        before = self._past.pop(now.pipeline, None)
        self._past[now.pipeline] = now if before is None else added(before, now)
        while len(self._past) > MAX_PAST:
            self._past.popitem(last=False)
        return producer


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _awaited(opening: Opening, beat_s: float, on_busy: OnBusy) -> Opened:
    while not opening.wait(beat_s):
        if not on_busy(opening.progress):
            raise ClosedError("nobody waits for the data set any more")
    return opening.result.result()
