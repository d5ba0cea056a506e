"""The other workers of the fleet, as one worker sees them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final, Literal

from pyarrow import flight

from stoker.storage.daemon_pool import DaemonPool
from stoker_service.members import UNTOLD, Member, Members
from stoker_service.transport.flight import connect
from stoker_service.worker.ownership import Owners
from stoker_service.worker.range_call import Patience, RangeCall

MAX_CALLS: Final = 64
"""To all others at a time; more wait."""

PATIENT: Final = Patience()

Outcome = Literal["served", "refused", "late"]


@dataclass(frozen=True, slots=True)
class View:
    """Who keeps ranges: the members that were told last, and who of them owns what."""

    members: Members
    owners: Owners


class Fleet:
    """Membership, connections and counters; of one worker, for all its data sets. Safe for all threads.

    Until somebody tells who the members are, a worker with a cache is its only one.
    """

    def __init__(self, worker_id: str, *, keeps_cache: bool, patience: Patience = PATIENT) -> None:
        self.worker_id: Final = worker_id
        self.patience: Final = patience
        alone = [Member(worker_id, "")] if keeps_cache else []
        self._view = View(UNTOLD, Owners(alone))
        self._lock = threading.Lock()
        self._clients: dict[str, flight.FlightClient] = {}
        self._pool = DaemonPool(MAX_CALLS, "stoker-peer")
        self._out: set[RangeCall] = set()
        self._is_closed = False
        self._peer_bytes = 0
        self._calls: dict[Outcome, int] = {"served": 0, "refused": 0, "late": 0}

    def told(self, members: Members) -> None:
        """The dispatcher said who the members are. Who waits for one that is none any more reads by himself."""
        view = View(members, Owners(members.members))
        locations = {member.location for member in members.members}
        with self._lock:
            self._view = view
            self._clients = {place: client for place, client in self._clients.items() if place in locations}
            in_vain = [call for call in self._out if call.location not in locations]
        for call in in_vain:
            call.cancel()

    @property
    def view(self) -> View:
        """Who keeps ranges, at the moment. The same object until that changes."""
        return self._view

    def client(self, location: str) -> flight.FlightClient | None:
        """The connection to a worker, shared by all calls; None once this is closed. Raises SpecError."""
        with self._lock:
            if self._is_closed:
                return None
            if location not in self._clients:
                self._clients[location] = connect(location)
            return self._clients[location]

    def drop(self, location: str) -> None:
        """Take a new connection next time. The old one is closed when no call has it any more."""
        with self._lock:
            self._clients.pop(location, None)

    def start(self, call: RangeCall, *, knows_source: bool) -> bool:
        """Make a call in a thread; False once this is closed."""
        with self._lock:
            if not self._is_closed:
                self._out.add(call)
                self._pool.submit(self._run, call, knows_source)
            return not self._is_closed

    def count(self, outcome: Outcome, num_bytes: int = 0) -> None:
        """A call ended."""
        with self._lock:
            self._calls[outcome] += 1
            self._peer_bytes += num_bytes

    def counts(self) -> tuple[int, dict[Outcome, int]]:
        """Bytes that others gave, and calls by outcome."""
        with self._lock:
            return self._peer_bytes, dict(self._calls)

    def close(self) -> None:
        """Ask nobody any more; calls that are out are cut."""
        with self._lock:
            self._is_closed = True
            self._clients = {}
            left = list(self._out)
        for call in left:
            call.cancel()
        self._pool.shutdown(wait=False)

    def _run(self, call: RangeCall, knows_source: bool) -> None:
        try:
            call.run(knows_source)
        finally:
            with self._lock:
                self._out.discard(call)
