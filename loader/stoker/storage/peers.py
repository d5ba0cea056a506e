"""Other machines that may have a range: the seam between storage and a fleet of workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from stoker.storage.store import ObjectRange
from stoker.storage.use import Use


class Peers(Protocol):
    """Each range has one owner in the fleet, which reads it from the bucket for all. Safe for many threads."""

    def owns(self, wanted: ObjectRange) -> bool:
        """Whether this process keeps the range for the others; only such ranges go into its cache."""
        ...

    def read(self, ranges: Sequence[ObjectRange], uses: Sequence[Use]) -> list[memoryview | None]:
        """The ranges from their owners; None where this process owns it or the owner did not give it in time."""
        ...
