"""ChunkCache: each range from memory, else from disk, else from whoever can load it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from stoker.storage.cache.disk import DiskTier
from stoker.storage.cache.flights import Flights
from stoker.storage.cache.key import digest_of
from stoker.storage.cache.options import CacheOptions
from stoker.storage.cache.ram import RamTier
from stoker.storage.cache.reading import Load, Reading, Wanted
from stoker.storage.cache.stats import CacheStats
from stoker.storage.cache.tally import Tally
from stoker.storage.cache.tiers import Tiers
from stoker.storage.fork_news import tell_after_fork
from stoker.storage.store import ObjectRange
from stoker.storage.urls import scheme_of
from stoker.storage.use import Use

_WAIT_S: Final = 20.0


class ChunkCache:
    """Thread-safe; several processes and jobs share one folder. A forked child may go on with it, its memory empty.

    ``clock`` gives the time by which the paces of jobs are compared; it is one for all processes. ``wait_s`` bounds the
    wait for a range that another thread or process is loading.
    """

    def __init__(
        self, options: CacheOptions, *, clock: Callable[[], float] = time.time, wait_s: float = _WAIT_S
    ) -> None:
        self._options = options
        self._wait_s = wait_s
        self._tally = Tally()
        self._flights = Flights()
        ram = RamTier(options.ram_bytes, clock) if options.ram_bytes else None
        disk = DiskTier(options, options.folder, clock) if options.folder is not None else None
        self._tiers = Tiers(ram, disk, self._tally)
        tell_after_fork(self)

    def read(self, ranges: Sequence[ObjectRange], uses: Sequence[Use], load: Load) -> list[memoryview]:
        """The ranges in their order, read-only: from memory, else from disk, else from ``load``.

        ``load`` is called at most once with all that nobody on this machine is loading, and again only for what others
        did not bring in ``wait_s``. It returns whole views in order; its errors pass, and nothing of that call is kept.
        Errors of the cache's own disk never pass.
        """
        wanted: dict[bytes, Wanted] = {}
        plain: list[Wanted] = []
        order: list[Wanted] = []
        for each, use in zip(ranges, uses, strict=True):
            if self._is_kept(each):
                digest = digest_of(each)
                order.append(wanted.setdefault(digest, Wanted(each, use, digest)))
            else:
                plain.append(Wanted(each, use, b""))
                order.append(plain[-1])
        Reading(self._tiers, self._flights, load, self._wait_s).get(list(wanted.values()), plain)
        return [each.view for each in order if each.view is not None]

    @property
    def budget_bytes(self) -> int:
        """What it may hold, in memory and on disk."""
        disk = self._tiers.disk
        return self._options.ram_bytes + (0 if disk is None else disk.budget_bytes)

    def bring(self, ranges: Sequence[ObjectRange], uses: Sequence[Use], load: Load) -> None:
        """Keep what is not here yet; as :meth:`read`, but what is here is not looked at, only kept for the use."""
        here: list[tuple[bytes, Use]] = []
        missing: list[tuple[ObjectRange, Use]] = []
        for each, use in zip(ranges, uses, strict=True):
            if self._is_kept(each):
                digest = digest_of(each)
                if self._tiers.holds(digest):
                    here.append((digest, use))
                else:
                    missing.append((each, use))
        self._tiers.expect(here)
        if missing:
            self.read([each for each, _ in missing], [use for _, use in missing], load)

    def drop(self, wanted: ObjectRange) -> None:
        """Forget a range whose bytes proved wrong."""
        if self._is_kept(wanted):
            self._tiers.drop(digest_of(wanted))

    def stats(self) -> CacheStats:
        """Counts of this process since the cache was opened, and what is held now."""
        stats = self._tally.stats()
        ram, disk = self._tiers.ram, self._tiers.disk
        if ram is not None:
            stats = replace(stats, held_ram_bytes=ram.held_bytes())
        if disk is not None:
            held = disk.held()
            stats = replace(
                stats,
                held_disk_bytes=held.num_bytes,
                held_files=held.num_files,
                evicted=stats.evicted + disk.evicted,
                errors=disk.faults.errors,
            )
        return stats

    def close(self) -> None:
        """Let go of memory, files and locks; what is on disk stays for the next. Reads go on, and only load."""
        self._tiers.close()

    def after_fork(self) -> None:
        """In a forked child: nothing that another thread of the parent may have held."""
        self._tally.after_fork()
        self._flights.after_fork()
        self._tiers.after_fork()

    def _is_kept(self, wanted: ObjectRange) -> bool:
        if not wanted.version or not wanted.num_bytes:
            return False
        return self._options.cache_files or scheme_of(wanted.url) != "file"
