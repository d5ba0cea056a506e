"""The list of bad samples, as a file of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from stoker.errors import SampleError


class Quarantine:
    """Appends each bad sample once: ``url``, ``row``, ``key``, ``op``, ``reason``, ``epoch``.

    Used by the consumer's thread alone. Without a path, only counts.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._seen: set[tuple[str, int]] = set()

    def add(self, errors: Sequence[SampleError], *, epoch: int) -> None:
        fresh = [error for error in errors if self._is_new(error)]
        if fresh and self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as lines:
                lines.writelines(_line(error, epoch) for error in fresh)

    def _is_new(self, error: SampleError) -> bool:
        assert error.origin is not None, "the engine gives every bad sample its origin"
        place = (error.origin.url, error.origin.row)
        if place in self._seen:
            return False
        self._seen.add(place)
        return True


def _line(error: SampleError, epoch: int) -> str:
    assert error.origin is not None
    entry = {
        "url": error.origin.url,
        "row": error.origin.row,
        "key": error.origin.key,
        "op": error.op,
        "reason": error.reason,
        "epoch": epoch,
    }
    return json.dumps(entry, ensure_ascii=False) + "\n"
