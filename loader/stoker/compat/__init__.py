"""What a script that was written for torch's DataLoader needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.compat.loader import DataLoader

__all__ = ["DataLoader"]


def __getattr__(name: str) -> Any:
    """Import the loader when it is first used: its worker processes do without it."""
    if name == "DataLoader":
        from stoker.compat.loader import DataLoader

        return DataLoader
    raise AttributeError(f"module 'stoker.compat' has no attribute {name!r}")
