"""A batch's keys, for messages; without torch, since the service's workers say them too."""

from __future__ import annotations

import reprlib
from typing import Any


def shortened(keys: Any) -> str:
    """A batch's keys, for messages: the first eight at most."""
    if not isinstance(keys, (list, tuple)):
        return reprlib.repr(keys)
    shown = ", ".join(reprlib.repr(key) for key in keys[:8])
    return f"{shown}, … ({len(keys)} in all)" if len(keys) > 8 else shown
