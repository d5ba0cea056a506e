"""Memory before disk: what memory does not keep goes to the disk."""

from __future__ import annotations

from stoker.storage.cache.disk import DiskTier
from stoker.storage.cache.ram import Evicted, RamTier
from stoker.storage.cache.tally import Tally
from stoker.storage.use import Use


class Tiers:
    """Either may be missing. While the disk has room everything goes there, so that others have it too; once it is
    full, only what memory has no room for. A range that memory serves is not told to the disk: there its use passes,
    and it goes first.
    """

    def __init__(self, ram: RamTier | None, disk: DiskTier | None, tally: Tally) -> None:
        self.ram = ram
        self.disk = disk
        self._tally = tally

    def in_memory(self, digest: bytes, use: Use) -> memoryview | None:
        """The range from memory, and counts it."""
        view = None if self.ram is None else self.ram.read(digest, use)
        if view is not None:
            self._tally.hit_ram(view.nbytes)
        return view

    def on_disk(self, digest: bytes, use: Use, num_bytes: int) -> memoryview | None:
        """The range from disk, and counts it; memory may take it, if it is needed sooner than what is there."""
        view = None if self.disk is None else self.disk.read(digest, num_bytes)
        if view is not None:
            self._tally.hit_disk(num_bytes)
            self._to_memory(digest, view, use)
        return view

    def shared(self, digest: bytes, view: memoryview, use: Use) -> None:
        """Counts a range that another thread got; memory may have it by now."""
        self._tally.hit_ram(view.nbytes)
        if self.ram is not None:
            self.ram.read(digest, use)

    def note(self, reads: list[tuple[bytes, Use]]) -> None:
        """Tell the disk who reads what."""
        if self.disk is not None and reads:
            self.disk.note(reads)

    def expect(self, reads: list[tuple[bytes, Use]]) -> None:
        """Keep what is here for uses that are near."""
        if self.ram is not None:
            for digest, use in reads:
                self.ram.read(digest, use)
        self.note(reads)

    def keep(self, digest: bytes, view: memoryview, use: Use) -> None:
        """Take a range that was loaded, and counts it."""
        in_memory = self._to_memory(digest, view, use)
        on_disk = self.disk is not None and self.disk.offer(digest, view, evict=not in_memory)
        self._tally.missed(view.nbytes, kept=in_memory or on_disk)

    def holds(self, digest: bytes) -> bool:
        """Whether the range is here, as far as can be told without reading it."""
        return (self.ram is not None and self.ram.holds(digest)) or (self.disk is not None and self.disk.holds(digest))

    def drop(self, digest: bytes) -> None:
        if self.ram is not None:
            self.ram.drop(digest)
        if self.disk is not None:
            self.disk.drop(digest)

    def close(self) -> None:
        if self.ram is not None:
            self.ram.close()
        if self.disk is not None:
            self.disk.close()

    def after_fork(self) -> None:
        if self.ram is not None:
            self.ram.after_fork()
        if self.disk is not None:
            self.disk.after_fork()

    def _to_memory(self, digest: bytes, view: memoryview, use: Use) -> bool:
        if self.ram is None:
            return False
        kept, gone = self.ram.offer(digest, view, use)
        self._tally.evicted(len(gone))
        for each in gone:
            self._to_disk(each)
        return kept

    def _to_disk(self, gone: Evicted) -> None:
        if self.disk is not None:
            if gone.next_use is not None:
                self.disk.expect(gone.digest, *gone.next_use)
            self.disk.offer(gone.digest, gone.view)
