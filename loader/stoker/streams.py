"""A stream of our own on each GPU, beside the trainer's."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@functools.cache
def side_stream(device: str) -> Any:
    """The ``torch.cuda.Stream`` of this process for a GPU; None for the CPU."""
    if not device.startswith("cuda"):
        return None
    torch: Any = importlib.import_module("torch")
    return torch.cuda.Stream(device=device)


@contextmanager
def beside(device: str) -> Iterator[None]:
    """Memory that is taken inside belongs to our stream, and what is started there is done at the end."""
    stream = side_stream(device)
    if stream is None:
        yield
        return
    torch: Any = importlib.import_module("torch")
    with torch.cuda.stream(stream):
        yield
    stream.synchronize()
