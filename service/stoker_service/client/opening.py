"""Opens a session: what has to be known before the first batch can be asked for."""

from __future__ import annotations

import contextlib
import logging
import queue
import random
import threading
import time
from dataclasses import dataclass
from typing import Final

from stoker.errors import ClosedError, ServiceError, SpecError, StallError
from stoker_proto.v1 import stream_pb2 as wire
from stoker_service.client.arenas import Peers
from stoker_service.client.control import Control, Progress
from stoker_service.client.owners import Assignment, Owner
from stoker_service.client.pauses import pause_s
from stoker_service.client.stall import no_worker_text
from stoker_service.transport import flight as calls
from stoker_service.transport.errors import from_wire

DESCRIBE_S: Final = 10.0
"""A worker that has not described the data after so many seconds is asked again, another one if it said nothing."""

REFUSED_AFTER_S: Final = 5.0
"""How long workers may refuse the pipeline before that is an error: others may be just starting."""

SAY_AFTER_S: Final = 2.0
"""After so many seconds of waiting for a worker, the log says so, once."""

_log = logging.getLogger("stoker")


@dataclass(frozen=True, slots=True)
class DatasetView:
    """What a worker tells of the data: their fingerprint, and how many samples they are."""

    fingerprint: str
    num_samples: int


class Opening:
    """Finds a worker and has it describe the data; :meth:`find` runs in the thread of whoever opens.

    From :meth:`find` on the control thread beats, so that the dispatcher knows that somebody waits for workers.
    """

    def __init__(self, control: Control, peers: Peers, pipeline: wire.Pipeline, timeout_s: float) -> None:
        self._control = control
        self._peers = peers
        self._pipeline = pipeline
        self._timeout_s = timeout_s
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._chance = random.Random()  # jitter is to differ between processes
        self._busy_with = ""
        self._closed = False

    def find(self) -> DatasetView:
        """Describe the data set. Raises StallError after ``timeout_s`` without any progress; what the worker raises."""
        deadline_s = time.monotonic() + self._timeout_s
        turn = attempt = 0
        while True:
            owner = self._some_worker(deadline_s, turn)
            heard = self._busy_with
            try:
                return self._describe(owner, deadline_s)
            except ServiceError as error:
                if self._busy_with != heard:  # it works on it: a scan of many shards may take long
                    deadline_s, attempt = time.monotonic() + self._timeout_s, 0
                    continue
                self._give_up_at(deadline_s, owner, error)
                self._control.report(owner, str(error))
            self._pause(pause_s(attempt, self._chance))
            turn, attempt = turn + 1, attempt + 1

    def on_assignment(self, assignment: Assignment) -> None:
        """The owners changed; called in the control thread."""
        del assignment
        self._news.put(None)

    def close(self) -> None:
        """End the wait of :meth:`find`."""
        self._closed = True
        self._news.put(None)

    def _some_worker(self, deadline_s: float, turn: int) -> Owner:
        """A worker that owns lanes, another one at each turn. Waits until there is one."""
        say_at_s = time.monotonic() + SAY_AFTER_S
        refused_at_s = time.monotonic() + min(REFUSED_AFTER_S, self._timeout_s)
        has_said = False
        while not (workers := self._control.assignment.workers):
            now_s = time.monotonic()
            if now_s >= refused_at_s and self._control.assignment.is_refusal:
                raise SpecError(self._control.assignment.reason)
            if now_s >= deadline_s:
                reason = self._control.assignment.reason
                raise StallError(no_worker_text(self._timeout_s, reason, self._control.describe()))
            if now_s >= say_at_s and not has_said:
                has_said = True
                reason = self._control.assignment.reason or "no worker is registered"
                _log.warning("waiting for a worker, up to %g s: %s", self._timeout_s, reason)
            due_s = [deadline_s, *(() if has_said else (say_at_s,)), *((refused_at_s,) if now_s < refused_at_s else ())]
            self._pause(min(due_s) - now_s)
        return workers[turn % len(workers)]

    def _describe(self, owner: Owner, deadline_s: float) -> DatasetView:
        peer = self._peers.of(owner)
        body = wire.DescribeRequest(pipeline=self._pipeline).SerializeToString()
        left_s = max(0.1, min(DESCRIBE_S, deadline_s - time.monotonic()))
        try:
            for answer in calls.act(peer.client, owner.location, calls.DESCRIBE, body, left_s):
                found = wire.Description.FromString(answer)
                if found.HasField("error"):
                    error = from_wire(found.error)
                    error.add_note(f"said by {owner}, where the data are read; a path means a file of its machine")
                    raise error
                if found.dataset:
                    return DatasetView(found.dataset, found.num_samples)
                self._tell(owner, found.progress)
        except ServiceError:
            self._peers.drop(peer)
            raise
        raise ServiceError(f"{owner} ended without saying what the data are")

    def _tell(self, owner: Owner, progress: str) -> None:
        if progress and progress != self._busy_with:
            self._busy_with = progress
            _log.info("%s: %s", owner, progress)

    def _give_up_at(self, deadline_s: float, owner: Owner, error: ServiceError) -> None:
        if time.monotonic() >= deadline_s:
            busy = f"; it was busy with: {self._busy_with}" if self._busy_with else ""
            raise StallError(
                f"no worker described the data within {self._timeout_s:g} s (timeout_s): {owner}: {error}{busy}; "
                f"{self._control.describe()}"
            ) from error

    def _pause(self, seconds: float) -> None:
        """Wait for news. Raises ClosedError."""
        with contextlib.suppress(queue.Empty):
            self._news.get(timeout=max(0.0, seconds))
        if self._closed:
            raise ClosedError("the session was closed while it was opened")


def run_apart(opening: Opening, control: Control, timeout_s: float) -> DatasetView:
    """Open in a thread of its own, so that calls into gRPC do not keep Ctrl-C from the main thread."""
    results: queue.SimpleQueue[DatasetView | BaseException] = queue.SimpleQueue()

    def run() -> None:
        try:
            control.open(timeout_s)
            control.start(Progress, opening.on_assignment)
            results.put(opening.find())
        except BaseException as error:  # noqa: BLE001  # it goes to whoever waits for the result
            results.put(error)

    threading.Thread(target=run, name="stoker-open", daemon=True).start()
    found = results.get()
    if isinstance(found, BaseException):
        raise found
    return found
