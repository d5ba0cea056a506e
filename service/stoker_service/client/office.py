"""What the workers of one crew share."""

from __future__ import annotations

import os
import queue
import threading
import time
from typing import Final

from stoker.batch.pool import BufferPool
from stoker_proto.v1 import stream_pb2 as wire
from stoker_service.client.arenas import Peers
from stoker_service.client.control import Control, JobIdentity, Progress
from stoker_service.client.flow import MISSED_BEATS
from stoker_service.client.order_call import OrderCall, request_for
from stoker_service.client.owners import Assignment
from stoker_service.client.remote_worker import News, RemoteWorker
from stoker_service.client.ticks import ticks

CLOSE_S: Final = 1.5
"""How long closing waits for threads; what has not ended by then is a daemon."""

SILENT_S: Final = 5.0
"""A worker of which nothing is heard for so long, and for some beats, is given up: a process elsewhere is dear."""


class Office:
    """What a crew's threads refer to, so that a crew that is forgotten can be told from one that is used.

    Its own thread gives up calls that went silent, and lets workers hear that the trainer lives.
    """

    def __init__(self, control: Control, job: JobIdentity, wait_s: float) -> None:
        self.control: Final = control
        self.peers: Final = Peers(use_arenas=False)
        self.pool: Final = BufferPool()
        self.wait_s: Final = wait_s
        self.epoch = 0
        self._job = job
        self._pid = os.getpid()
        self._news: queue.SimpleQueue[tuple[RemoteWorker, News]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._workers: set[RemoteWorker] = set()
        self._is_closed = False
        self._stop_watch: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._watch = threading.Thread(target=self._run_watch, name="stoker-watch", daemon=True)
        self._opened_s = time.monotonic()
        self._rows = self._batches = 0
        self._wait_s = 0.0

    def start(self) -> None:
        """Begin to beat and to watch."""
        self.control.start(self._progress, self._on_assignment)
        self._watch.start()

    def hire(self, index: int, before: RemoteWorker | None) -> RemoteWorker:
        """A worker that is not started yet, in the place of another one, which is sent home."""
        worker = RemoteWorker(self, index)
        with self._lock:
            if before is not None:
                self._workers.discard(before)
            self._workers.add(worker)
        if before is not None:
            before.close()
        return worker

    def request(self, worker_index: int) -> wire.StreamRequest:
        """See :class:`stoker_service.client.remote_worker.Host`."""
        return request_for(self._job.pipeline, worker_index, self._job.client_id, self._job.name)

    def tell(self, worker: RemoteWorker, news: News) -> None:
        """See :class:`stoker_service.client.remote_worker.Host`."""
        self._news.put((worker, news))

    def next(self, timeout_s: float) -> tuple[RemoteWorker, News] | None:
        """What happened next; None if nothing did in time."""
        begun_s = time.monotonic()
        try:
            return self._news.get(timeout=timeout_s) if timeout_s > 0 else self._news.get_nowait()
        except queue.Empty:
            return None
        finally:
            self._wait_s += time.monotonic() - begun_s

    def count(self, num_rows: int) -> None:
        """A batch is handed out."""
        self._batches += 1
        self._rows += num_rows

    def close(self) -> None:
        """End all threads, and with them the processes, within 2 s; harmless again."""
        if self._pid != os.getpid():
            return
        deadline_s = time.monotonic() + CLOSE_S
        with self._lock:
            self._is_closed = True
            workers, self._workers = self._workers, set()
        self._stop_watch.put(None)
        for worker in workers:
            worker.close()
        self.control.close(deadline_s)
        for worker in workers:
            worker.join(deadline_s)
        self.peers.close()

    def _progress(self) -> Progress:
        return Progress(
            rows=self._rows,
            steps=self._batches,
            wait_s=self._wait_s,
            active_s=time.monotonic() - self._opened_s,
            epoch=self.epoch,
        )

    def _on_assignment(self, assignment: Assignment) -> None:
        del assignment
        for worker in self._present():
            worker.look_again()

    def _present(self) -> list[RemoteWorker]:
        with self._lock:
            return list(self._workers)

    # -- the thread that watches --------------------------------------------------------------------------------------

    def _run_watch(self) -> None:
        for num_ticks, heard_s in enumerate(ticks(self.control.beat_s / 2, self._stop_watch), 1):
            for worker in self._present():
                call = worker.call
                if call is not None:
                    _watch(call, heard_s)
                    if num_ticks % 2 == 0:
                        worker.order(_HEARTBEAT)


_HEARTBEAT: Final = wire.Order(heartbeat=wire.Heartbeat())


def _watch(call: OrderCall, passed_s: float) -> None:
    """Give a call up on which nothing was heard for some beats; its worker beats always."""
    if not call.is_reading:
        return
    call.silent_s += passed_s
    limit_s = max(SILENT_S, MISSED_BEATS * call.peer.beat_s)
    if call.silent_s > limit_s and not call.why_cancelled:
        call.give_up(f"{call.peer.owner} was silent for {limit_s:g} s")
