"""Does a worker answer?"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

from google.protobuf.message import DecodeError

from stoker.errors import ServiceError, SpecError, StokerError
from stoker_proto.v1 import control_pb2, stream_pb2
from stoker_service import versions
from stoker_service.dispatcher.events import Probe
from stoker_service.transport import flight

DEADLINE_S = 0.25


def answers(probe: Probe) -> bool:
    """Call the worker at its place; False if none answers in time, or another than this one does."""
    body = control_pb2.HelloRequest(version=versions.ours()).SerializeToString()
    try:
        with closing(flight.connect(probe.location)) as client:
            results = list(flight.act(client, probe.location, flight.HELLO, body, DEADLINE_S))
            return bool(results) and stream_pb2.WorkerHello.FromString(results[0]).worker_id == probe.worker_id
    except (SpecError, ServiceError):
        return False
    except (StokerError, DecodeError):
        return True  # it answers, though not as we like


class Prober:
    """Calls to workers, one at a time for each of them: who asks meanwhile waits for the same answer."""

    def __init__(self, ask: Callable[[Probe], bool] = answers) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._running: dict[str, threading.Event] = {}

    def probe(self, probe: Probe, tell: Callable[[bool], None]) -> None:
        """Return when the answer is known, and told by whoever asked first. In the caller's thread."""
        mine = threading.Event()
        with self._lock:
            running = self._running.setdefault(probe.worker_id, mine)
        if running is not mine:
            running.wait(2 * DEADLINE_S)
            return
        try:
            tell(self._ask(probe))
        finally:
            with self._lock:
                del self._running[probe.worker_id]
            mine.set()
