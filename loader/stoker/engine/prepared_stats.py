"""What a decoded cache did."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class PreparedCounts:
    """Running sums of one process, or of several; ``decision`` is the first's that has one.

    ``hits`` and ``misses`` are of chunks read; ``declined`` chunks had no room; ``errors`` are reads and writes of the
    cache itself that failed, each of which cost a decode.
    """

    hits: int = 0
    misses: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    entries_written: int = 0
    declined: int = 0
    errors: int = 0
    decision: str = ""

    def __add__(self, other: PreparedCounts) -> PreparedCounts:
        names = [each.name for each in fields(self) if each.name != "decision"]
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return PreparedCounts(**sums, decision=self.decision or other.decision)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class PreparedStats:
    """Counts that many threads add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = PreparedCounts()

    @property
    def counts(self) -> PreparedCounts:
        return self._counts

    def add(self, more: PreparedCounts) -> None:
        """Add to the counts."""
        with self._lock:
            self._counts = self._counts + more

    def decided(self, text: str) -> None:
        """Note the decision."""
        with self._lock:
            self._counts = replace(self._counts, decision=text)
