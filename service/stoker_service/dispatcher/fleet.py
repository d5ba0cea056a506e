"""Who keeps ranges of objects for the fleet."""

from __future__ import annotations

from stoker_service.dispatcher.model import Settings
from stoker_service.dispatcher.workers import KnownWorker, Workers
from stoker_service.members import UNTOLD, Member, Members, members

_LISTEN_S = 3.0  # connections are made again after up to a second, whatever the beat


class Fleet:
    """The workers that have a cache and are neither dead nor draining; looked at again only when told of a change.

    After a start of the dispatcher those who know members already are told nothing for a while: they know more than the
    dispatcher, until all have registered again.
    """

    def __init__(self, settings: Settings, workers: Workers, now_s: float) -> None:
        self._workers = workers
        self._holds_until_s = now_s + max(settings.dead_s, _LISTEN_S)
        self._is_holding = True
        self._members = UNTOLD
        self._is_stale = True

    def changed(self) -> None:
        """Some worker came, left, or is another."""
        self._is_stale = True

    def tick(self, now_s: float) -> None:
        """Time has passed."""
        self._is_holding = self._is_holding and now_s < self._holds_until_s

    def news_for(self, known: KnownWorker) -> Members | None:
        """What a worker that has beaten is to be told; None if it knows already."""
        version = known.beat.members_version if known.beat is not None else ""
        if version and self._is_holding:
            return None
        if self._is_stale:
            self._members = members(_member(one) for one in self._workers if one.takes_lanes and one.worker.keeps_cache)
            self._is_stale = False
        return None if version == self._members.version else self._members


def _member(known: KnownWorker) -> Member:
    return Member(known.worker.worker_id, known.worker.location)
