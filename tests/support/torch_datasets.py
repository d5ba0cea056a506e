"""Torch datasets, samplers and functions as users write them, importable by name: torch's ``spawn`` needs that."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, default_collate, get_worker_info

# -- map-style ---------------------------------------------------------------------------------------------------------


class Numbers(Dataset[Any]):
    """Sample ``i``: a tensor, a float, a text."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.count:
            raise IndexError(f"{index} of {self.count}")
        return torch.tensor([index, index * index]), index / 2, f"sample {index}"


class Drawing(Numbers):
    """Sample ``i``: its number, and what each library's global generator gives."""

    def __getitem__(self, index: int) -> Any:
        return {"index": index, **drawn()}


def drawn() -> dict[str, Any]:
    """Draw from the global generators, as augmentations do."""
    return {
        "python": random.random(),
        "numpy": np.random.rand(),  # noqa: NPY002  # users' code does this
        "torch": torch.rand(2),
        "integer": torch.randint(2**31, ()),
    }


class Together(Numbers):
    """Fetches a whole batch at once, and draws once for it."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        share = random.random()
        return [(index, share) for index in indices]


class Wide(Numbers):
    """Samples of 64 KiB: large enough for a batch to lie in shared memory."""

    def __getitem__(self, index: int) -> Any:
        return torch.full((16, 1024), index, dtype=torch.float32)


class Keyed(Dataset[Any]):
    """Keys of any kind: texts, tuples."""

    def __init__(self, samples: dict[Hashable, Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, key: Hashable) -> Any:
        return self.samples[key]


class Counting(Numbers):
    """Counts its own calls, as a cache in a dataset does; has settings that a trainer changes between epochs."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.calls = 0
        self.epoch = 0
        self.weights = np.zeros(3)
        self.table = torch.zeros(3)
        self.nested: dict[str, Any] = {"list": [1, 2, 3], "text": "a"}

    def change(self) -> None:
        """Change everything in place."""
        self.epoch += 1
        self.weights[1] += 1
        self.table[2] += 1
        self.nested["list"].append(self.epoch)
        self.nested["text"] = f"epoch {self.epoch}"

    def __getitem__(self, index: int) -> Any:
        self.calls += 1
        settings = self.epoch, self.weights.sum(), self.table.sum(), sum(self.nested["list"]), self.nested["text"]
        return (index, self.calls, *settings)


class Asking(Numbers):
    """Sample ``i``: what ``get_worker_info`` says."""

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        if info is None:
            return {"index": index, "worker": None}
        assert info.dataset is self
        return {
            "index": index,
            "worker": info.id,
            "of": info.num_workers,
            "seed": info.seed,
            "mark": vars(self).get("mark"),
        }


class Fields(Numbers):
    """Sample ``i``: all fields of the worker's info, and a few facts of its process."""

    def __getitem__(self, index: int) -> Any:
        info: Any = get_worker_info()
        return {
            "pid": os.getpid(),
            "seed": torch.initial_seed(),
            "threads": torch.get_num_threads(),
            "names": sorted(info.__dataclass_fields__),
            "method": info.worker_method,
            "rng": info.rng,
        }


class OddError(Exception):
    """An error of the user's own, which needs two arguments."""

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason, code)
        self.reason, self.code = reason, code

    def __str__(self) -> str:
        return f"{self.reason} (code {self.code})"


class Failing(Numbers):
    """Raises for some samples."""

    def __init__(self, count: int, errors: dict[int, BaseException]) -> None:
        super().__init__(count)
        self.errors = errors

    def __getitem__(self, index: int) -> Any:
        if index in self.errors:
            raise self.errors[index]
        return index


class Valued(Dataset[Any]):
    """Given values; sample ``i`` is what was given for it."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Any:
        return self.values[index]


class Blocked(Numbers):
    """One sample waits until a named pipe has a writer and is closed; the others come at once."""

    def __init__(self, count: int, pipe: Path, blocked: int) -> None:
        super().__init__(count)
        self.pipe, self.blocked = str(pipe), blocked

    def __getitem__(self, index: int) -> Any:
        if index == self.blocked:
            Path(self.pipe).read_bytes()
        return index


class Deadly(Numbers):
    """One sample kills its worker, as often as there are marks left in a folder for it."""

    def __init__(self, count: int, folder: Path, deadly: int, number: int = signal.SIGKILL) -> None:
        super().__init__(count)
        self.folder, self.deadly, self.number = str(folder), deadly, int(number)

    def __getitem__(self, index: int) -> Any:
        marks = list(Path(self.folder).iterdir()) if index == self.deadly else []
        if marks:
            marks[0].unlink()
            os.kill(os.getpid(), self.number)
        return index


class Relay(Numbers):
    """One sample waits at a named pipe that another one opens."""

    def __init__(self, count: int, pipe: Path, waits: int, opens: int) -> None:
        super().__init__(count)
        self.pipe, self.waits, self.opens = str(pipe), waits, opens

    def __getitem__(self, index: int) -> Any:
        if index == self.waits:
            Path(self.pipe).read_bytes()
        if index == self.opens:
            Path(self.pipe).write_bytes(b"")
        return index


class Loaded(Numbers):
    """Has a large array; sample ``i``: process, the file in memory that the array lies in, what it begins with."""

    def __init__(self, count: int, num_bytes: int) -> None:
        super().__init__(count)
        self.table = np.zeros(num_bytes, np.uint8)
        self.table[:] = 1

    def __getitem__(self, index: int) -> Any:
        address = self.table.ctypes.data
        for line in Path("/proc/self/maps").read_text(encoding="ascii").splitlines():
            first, _, last = line.split()[0].partition("-")
            if int(first, 16) <= address < int(last, 16):
                return os.getpid(), line.split()[4], int(self.table[0])
        raise AssertionError("the array lies nowhere")


LOCK = threading.Lock()


class Locking(Numbers):
    """Takes a lock of its module, as clients of stores do."""

    def __getitem__(self, index: int) -> Any:
        with LOCK:
            return index


# -- iterable ----------------------------------------------------------------------------------------------------------


class Stream(IterableDataset[Any]):
    """Yields numbers, and never asks which worker it is in."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[Any]:
        yield from range(self.count)


class SizedStream(Stream):
    """One that claims a length."""

    def __init__(self, count: int, length: int) -> None:
        super().__init__(count)
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:  # torch's warning has it
        return f"SizedStream({self.length})"


class Sharded(IterableDataset[Any]):
    """Shares its numbers out over the workers, as torch's documentation shows."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        step = (0, 1) if info is None else (info.id, info.num_workers)
        yield from range(step[0], self.count, step[1])


class SizedSharded(Sharded):
    """One whose length is right."""

    def __len__(self) -> int:
        return self.count


class DrawingStream(Sharded):
    """Draws for each sample."""

    def __iter__(self) -> Iterator[Any]:
        for index in super().__iter__():
            yield {"index": index, **drawn()}


class Uneven(IterableDataset[Any]):
    """Worker ``w`` yields ``counts[w]`` samples."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts = counts

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker = 0 if info is None else info.id
        yield from (100 * worker + number for number in range(self.counts[worker]))


class Ranged(IterableDataset[Any]):
    """A range that :func:`cut_range` narrows in each worker, as in torch's documentation."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end

    def __iter__(self) -> Iterator[Any]:
        return iter(range(self.start, self.end))


class CountingStream(Sharded):
    """Counts how often it was iterated: a worker that is kept knows."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.epoch = 0

    def __iter__(self) -> Iterator[Any]:
        self.epoch += 1
        for index in super().__iter__():
            yield self.epoch, index


class Breaking(Sharded):
    """Raises in the middle."""

    def __iter__(self) -> Iterator[Any]:
        for index in super().__iter__():
            if index >= 6:
                raise ValueError(f"the stream broke at {index}")
            yield index


class Endless(IterableDataset[Any]):
    """Never ends."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        number = 0 if info is None else info.id
        while True:
            yield number
            number += 1 if info is None else info.num_workers


# -- functions and values ----------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """A named tuple."""

    left: Any
    right: Any


@dataclass
class Box:
    """A dataclass."""

    size: Any
    name: Any


class Pinned:
    """A batch of a type of its own, which knows how to be pinned, as torch's documentation shows."""

    def __init__(self, samples: Sequence[Any]) -> None:
        self.indices = [sample[1] for sample in samples]
        self.tensor = torch.stack([sample[0] for sample in samples])
        self.is_pinned_by_us = False

    def pin_memory(self) -> Pinned:
        """Note that it was asked for."""
        self.is_pinned_by_us = True
        return self


def as_list(samples: list[Any]) -> list[Any]:
    """No collation."""
    return samples


def as_boxes(samples: list[Any]) -> Any:
    """A dataclass, a set, None and the batch that torch would make."""
    return Box(default_collate(samples), None), {"length": {len(samples)}, "nothing": None}


def as_pinned(samples: list[Any]) -> Pinned:
    """A type of the user's own."""
    return Pinned(samples)


def with_draw(samples: list[Any]) -> Any:
    """Draws while it collates."""
    return default_collate(samples), drawn()


def failing_collate(samples: list[Any]) -> Any:
    """Raises."""
    raise ZeroDivisionError(f"cannot collate {len(samples)}")


def mark(worker_id: int) -> None:
    """A worker_init_fn that changes the dataset, and draws."""
    info: Any = get_worker_info()
    info.dataset.mark = f"worker {worker_id} of {info.num_workers}, {random.random()}"


def cut_range(worker_id: int) -> None:
    """A worker_init_fn that shares a range out."""
    info: Any = get_worker_info()
    dataset = info.dataset
    share = -(-(dataset.end - dataset.start) // info.num_workers)
    start = dataset.start + worker_id * share
    dataset.start, dataset.end = start, min(start + share, dataset.end)


def failing_init(worker_id: int) -> None:
    """Raises in the second worker."""
    if worker_id == 1:
        raise LookupError(f"worker {worker_id} cannot start")


def own_seed(worker_id: int) -> None:
    """A worker_init_fn that seeds by the clock's stand-in, as people do for NumPy."""
    np.random.seed((torch.initial_seed() + worker_id) % 2**32)  # noqa: NPY002  # users' code does this
