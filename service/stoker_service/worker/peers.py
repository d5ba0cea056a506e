"""Ranges of one data set, from the workers that keep them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stoker.errors import SpecError
from stoker.formats.source import Files
from stoker.formats.stores import is_local
from stoker.pipeline import Pipeline
from stoker.storage.store import ObjectRange
from stoker.storage.use import Use
from stoker_service.members import Member
from stoker_service.worker import range_request
from stoker_service.worker.fleet import Fleet, View
from stoker_service.worker.ownership import key_of
from stoker_service.worker.range_call import RangeCall
from stoker_service.worker.range_request import SourceText
from stoker_service.worker.standing import GOOD, Standing

_LOG: Final = logging.getLogger("stoker")


@dataclass(frozen=True, slots=True)
class _Out:
    """A call that is out, and which of the ranges it is for."""

    owner: Member
    indices: Sequence[int]
    call: RangeCall


class FleetPeers:
    """See :class:`stoker.storage.peers.Peers`. Safe for many threads.

    It asks nobody until :meth:`opened` has told the data set's fingerprint: reading an index asks nobody. A worker
    that fails is left alone for a while; meanwhile who needs its ranges reads them himself, and keeps none of them.
    """

    def __init__(self, fleet: Fleet, pipeline: Pipeline) -> None:
        self._fleet = fleet
        self._source = SourceText.of(pipeline)
        self._by_name = isinstance(pipeline.source, Files)
        self._fingerprint = ""
        self._lock = threading.Lock()
        self._of: View | None = None
        self._standings: dict[Member, Standing] = {}
        self._knowing: set[Member] = set()

    def opened(self, fingerprint: str) -> None:
        """The data set is open."""
        self._fingerprint = fingerprint

    def owns(self, wanted: ObjectRange) -> bool:
        """Whether to read the range here, and to keep it: it is this worker's, or nobody would keep it for others."""
        if not self._is_shared(wanted):
            return True
        owner = self._owner(self._fleet.view, wanted)
        return owner is None or owner.worker_id == self._fleet.worker_id

    def read(self, ranges: Sequence[ObjectRange], uses: Sequence[Use]) -> list[memoryview | None]:
        """The ranges from their owners, in one call for each; several, if they are more than a call may have."""
        found: list[memoryview | None] = [None] * len(ranges)
        if not self._fingerprint:
            return found
        calls = [
            self._asked(owner, indices, ranges, uses)
            for owner, indices in self._by_owner(ranges)
            if self._may_ask(owner)
        ]
        for out in calls:
            bodies = self._awaited(out) if out is not None else None
            if out is not None and bodies is not None:
                for index, body in zip(out.indices, bodies, strict=True):
                    found[index] = body
        return found

    # -- who ----------------------------------------------------------------------------------------------------------

    @staticmethod
    def _is_shared(wanted: ObjectRange) -> bool:
        """Whether anybody keeps such a range: of a known version, and not on this machine's disk."""
        return bool(wanted.version) and not is_local(wanted.url)

    def _owner(self, view: View, wanted: ObjectRange) -> Member | None:
        return view.owners.of(key_of(wanted, by_name=self._by_name))

    def _by_owner(self, ranges: Sequence[ObjectRange]) -> list[tuple[Member, list[int]]]:
        """What to ask whom for, by the ranges' indices, in parts that one call may have."""
        view = self._fleet.view
        parts: list[tuple[Member, list[int]]] = []
        open_parts: dict[Member, tuple[list[int], int]] = {}
        for index, wanted in enumerate(ranges):
            owner = self._owner(view, wanted) if self._is_shared(wanted) else None
            if owner is None or owner.worker_id == self._fleet.worker_id:
                continue
            indices, num_bytes = open_parts.get(owner, ([], 0))
            num_bytes += wanted.num_bytes
            if not indices or num_bytes > range_request.MAX_CALL_BYTES or len(indices) >= range_request.MAX_RANGES:
                indices, num_bytes = [], wanted.num_bytes
                parts.append((owner, indices))
            indices.append(index)
            open_parts[owner] = indices, num_bytes
        return parts

    def _may_ask(self, owner: Member) -> bool:
        now_s = time.monotonic()
        with self._lock:
            if self._of is not self._fleet.view:  # who came back is tried at once
                self._of, self._standings, self._knowing = self._fleet.view, {}, set()
            standing = self._standings.get(owner, GOOD)
            if not standing.allows(now_s):
                return False
            self._standings[owner] = standing.asked(now_s)
            return True

    # -- calls --------------------------------------------------------------------------------------------------------

    def _asked(
        self, owner: Member, indices: Sequence[int], ranges: Sequence[ObjectRange], uses: Sequence[Use]
    ) -> _Out | None:
        """Begin a call."""
        try:
            client = self._fleet.client(owner.location)
        except SpecError as error:
            self._failed(owner, time.monotonic(), str(error))
            return None
        if client is None:
            return None
        patience = self._fleet.patience
        mine, my_uses = [ranges[index] for index in indices], [uses[index] for index in indices]

        def ticket(with_source: bool) -> bytes:
            wait_s = patience.wait_s
            return range_request.ticket(
                self._source, self._fingerprint, mine, my_uses, wait_s=wait_s, with_source=with_source
            )

        call = RangeCall(client, owner.location, ticket, [wanted.num_bytes for wanted in mine], patience)
        knows_source = owner in self._knowing
        is_started = self._fleet.start(call, knows_source=knows_source)
        return _Out(owner, indices, call) if is_started else None

    def _awaited(self, out: _Out) -> list[memoryview] | None:
        """Wait for a call, and draw the conclusions."""
        bodies = out.call.wait()
        if bodies is not None:
            self._fleet.count("served", sum(len(body) for body in bodies))
            with self._lock:
                self._standings.pop(out.owner, None)
                self._knowing.add(out.owner)
            return bodies
        failure = out.call.failure
        self._fleet.count("refused" if failure is not None else "late")
        if failure is not None or out.call.is_late:
            if not out.call.was_answered:
                self._fleet.drop(out.owner.location)
            self._failed(out.owner, out.call.begun_s, str(failure or "it did not answer in time"))
        return None

    def _failed(self, owner: Member, begun_s: float, reason: str) -> None:
        with self._lock:
            before = self._standings.get(owner, GOOD)
            self._standings[owner] = after = before.failed(begun_s, time.monotonic())
            self._knowing.discard(owner)
        if not before.num_failures and after.num_failures:
            _LOG.info("worker %s does not give what it keeps, so it is read here: %s", owner.worker_id, reason)
