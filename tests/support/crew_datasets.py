"""Datasets whose samples say where they were made, or do what datasets should not."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info


class Values:
    """Sample ``key`` is a tensor full of ``key``."""

    def __init__(self, num_values: int = 1) -> None:
        self.num_values = num_values
        self.offset = 0

    def __getitem__(self, key: int) -> torch.Tensor:
        return torch.full((self.num_values,), key + self.offset, dtype=torch.float32)


class Acts:
    """Does what a key says: ``"pid"`` or ``("exit", 3)``; other keys are their own samples."""

    def __init__(self, folder: str = "") -> None:
        self.folder = folder
        self.counter = 0

    def __getitem__(self, key: Any) -> Any:
        self.counter += 1
        name, *arguments = key if isinstance(key, tuple) else (key,)
        act = getattr(self, f"do_{name}", None) if isinstance(name, str) else None
        return key if act is None else act(*arguments)

    def do_exit(self, code: int) -> NoReturn:
        sys.exit(code)

    def do_kill(self, number: int) -> None:
        os.kill(os.getpid(), number)

    def do_wait(self, name: str) -> str:
        """Say that it waits, then wait until a file of that name is there, or a minute."""
        Path(self.folder, f"{name}.begun").touch()
        deadline = time.monotonic() + 60
        while not Path(self.folder, name).exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        return "waited"

    def do_spin(self, name: str) -> str:
        """The same, at work."""
        deadline = time.monotonic() + 60
        while not Path(self.folder, name).exists() and time.monotonic() < deadline:
            pass
        return "spun"

    def do_lock(self) -> Any:
        return threading.Lock()

    def do_interrupt(self) -> NoReturn:
        raise KeyboardInterrupt

    def do_missing(self) -> NoReturn:
        raise KeyError("missing")

    def do_counter(self) -> int:
        return self.counter

    def do_draw(self) -> tuple[float, int, float]:
        return random.random(), int(np.random.randint(1 << 30)), torch.rand(()).item()  # noqa: NPY002

    def do_pid(self) -> int:
        return os.getpid()

    def do_threads(self) -> int:
        return torch.get_num_threads()

    def do_print(self) -> str:
        print("printed by a dataset", flush=True)  # noqa: T201
        return "printed"


class Broken:
    """Can be sent, and not be made again."""

    def __reduce__(self) -> Any:
        return _refuse, ("the dataset cannot be opened here",)


def _refuse(text: str) -> Any:
    raise OSError(5, text)


class Counting(IterableDataset[int]):
    """All numbers below ``count``, in every worker."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))


class Sharing(Counting):
    """Each worker takes its share."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        return iter(range(info.id, self.count, info.num_workers))


class Unreadable:
    """A result that can be sent, and not be read."""

    def __reduce__(self) -> Any:
        return _refuse, ("the result cannot be opened here",)


def as_it_is(samples: Any) -> Any:
    """A collate_fn that does nothing."""
    return samples


def unreadable(_: Any) -> Any:
    """A collate_fn whose result cannot be read."""
    return Unreadable()
