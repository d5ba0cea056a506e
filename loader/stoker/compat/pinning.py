"""Batches on their way into pinned memory."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import torch
from torch.utils.data._utils.pin_memory import pin_memory

from stoker.storage.daemon_pool import DaemonPool


def pinned(value: Any, device: str | None) -> Any:
    """Return the value with its tensors in pinned memory, and what has a ``pin_memory`` method as that gives it."""
    return pin_memory(value, device)  # type: ignore[no-untyped-call]  # torch carries no types there


class Pinner:
    """Pins batches in a thread of its own, while the trainer does its step."""

    def __init__(self, device: str | None) -> None:
        self._device = device
        self._device_index = torch.accelerator.current_device_index() if torch.accelerator.is_available() else None
        self._threads = DaemonPool(1, "stoker-pin")

    def pin(self, value: Any) -> Future[Any]:
        """Begin to pin a value; its result is the pinned one, or what pinning raised."""
        return self._threads.submit(self._pin, value)

    def _pin(self, value: Any) -> Any:
        if self._device_index is not None:
            torch.accelerator.set_device_index(self._device_index)  # a setting of the thread
        return pinned(value, self._device)
