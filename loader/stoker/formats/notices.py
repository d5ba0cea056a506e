"""Warnings about data, each said once per opening."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from stoker.errors import StokerWarning

_SHOWN = 5


def announce(notices: Sequence[str], stacklevel: int = 3) -> None:
    """Warn of each notice; of the sixth and later ones only how many there are."""
    for notice in notices[:_SHOWN]:
        warnings.warn(notice, StokerWarning, stacklevel=stacklevel)
    if len(notices) > _SHOWN:
        text = f"… and {len(notices) - _SHOWN} more shards with notices; `stoker index` lists them all"
        warnings.warn(text, StokerWarning, stacklevel=stacklevel)
