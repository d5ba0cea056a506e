"""Small training programs over torch datasets, as processes of their own: ``run("break_out")``.

A program prints one JSON value per line. What it defines lies in its ``__main__``, as in a user's script.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from stoker.compat.loader import DataLoader
from stoker.errors import StokerError
from support import programs
from support.programs import say
from support.torch_datasets import Numbers, Pinned

_MODULE = "support.compat_programs"
_kept: list[Any] = []  # what a script's globals keep alive until the interpreter goes


def run(name: str, *arguments: str, under: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, under another command if one is given. TimeoutExpired if it hangs."""
    return subprocess.run(
        [*under, sys.executable, "-m", _MODULE, name, *arguments],
        env=programs.environment(),
        capture_output=True,
        text=True,
        timeout=programs.DEADLINE_S,
        check=False,
    )


def started(name: str, *arguments: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """See :func:`support.programs.started`."""
    return programs.started([sys.executable, "-m", _MODULE, name, *arguments])


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text(encoding="ascii").split()):
            found += [child, *descendants(child)]
    return found


class Pids(Numbers):
    """Sample ``i``: the worker's process."""

    def __getitem__(self, index: int) -> Any:
        return os.getpid()


class Stuck(Numbers):
    """One sample never comes."""

    def __getitem__(self, index: int) -> Any:
        if index == 3:
            threading.Event().wait()
        return index


# -- leaving -----------------------------------------------------------------------------------------------------------


def break_out() -> None:
    """Leave the loop; the loader lives until the interpreter goes."""
    _kept.append(DataLoader(Numbers(100), num_workers=2))
    for _ in _kept[0]:
        break
    _leave()


def iterator_kept() -> None:
    """Go while an iterator is half way, with batches in hand."""
    batches = iter(DataLoader(Numbers(100), num_workers=2))
    _kept.extend([batches, next(batches), next(batches)])
    _leave()


def persistent() -> None:
    """Go after an epoch of workers that are kept."""
    _kept.append(DataLoader(Numbers(10), num_workers=2, persistent_workers=True))
    list(_kept[0])
    _leave()


def forgotten() -> None:
    """Drop a loader without closing it: its workers go with it, soon."""
    next(iter(DataLoader(Numbers(100), num_workers=2)))
    _leave()


class Products(torch.utils.data.Dataset[torch.Tensor]):
    """Samples that take long in native code."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(500, 500) @ torch.rand(500, 500)


def threaded() -> None:
    """Threads of the program itself are at work when it ends."""
    batches = iter(DataLoader(Products(), batch_size=64, num_workers=2, worker_method="thread"))
    next(batches)
    _kept.append(batches)
    _leave()


def read_in_a_thread() -> None:
    """A thread that nobody waits for reads on while the program ends."""
    enough = threading.Event()

    def read() -> None:
        for number, _ in enumerate(DataLoader(range(1 << 30), batch_size=2, num_workers=2)):  # type: ignore[arg-type]
            if number == 50:
                enough.set()

    threading.Thread(target=read, daemon=True).start()
    assert enough.wait(60)


def stuck() -> None:
    """Go while a sample does not come."""
    _kept.append(iter(DataLoader(Stuck(100), num_workers=2)))
    next(_kept[0])
    _leave()


def raise_in_loop() -> None:
    """Let an exception of the trainer end the program."""
    for _ in DataLoader(Numbers(100), num_workers=2):
        _leave()
        raise RuntimeError("the trainer's own error")


def pinned() -> None:
    """Go in the middle of an epoch with pinning on; the accelerator is made up, the batches pin themselves."""
    torch.accelerator.is_available = lambda: True
    torch.accelerator.current_accelerator = lambda check_available=False: torch.device("cpu")
    torch.accelerator.current_device_index = lambda: 0
    torch.accelerator.set_device_index = lambda device: None
    _kept.append(DataLoader(Numbers(100), 2, num_workers=2, pin_memory=True, collate_fn=Pinned))
    for batch in _kept[0]:
        assert batch.is_pinned_by_us
        break
    _leave()


def _leave() -> None:
    say(descendants(os.getpid()))
    say("leaving")


def interrupted() -> None:
    """Train until Ctrl-C, as a script without any handling."""
    loader = DataLoader(Numbers(50), num_workers=2)
    for number in itertools.count():
        for _ in loader:
            pass
        if number == 1:
            say(descendants(os.getpid()))


def interrupted_twice() -> None:
    """Wait for a batch that never comes; at the first Ctrl-C, close, and meet the second there."""
    loader = DataLoader(Stuck(50), num_workers=1)
    try:
        batches = iter(loader)
        next(batches)
        say(descendants(os.getpid()))
        list(batches)
    except KeyboardInterrupt:
        say("closing")
        loader.close()
        signal.pause()


# -- forks -------------------------------------------------------------------------------------------------------------


def fork_after_reading() -> None:
    """Read a batch, fork, and read on in the child: with the parent's iterator, and with the loader anew."""
    loader = DataLoader(Numbers(20), batch_size=4, num_workers=1)
    batches = iter(loader)
    next(batches)
    results, answer = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_read_on, args=(loader, batches, answer))
    child.start()
    say(results.recv() if results.poll(programs.DEADLINE_S / 2) else "the child hangs")
    child.join(programs.DEADLINE_S / 4)
    say(child.exitcode)
    say(len(list(batches)))


def _read_on(loader: Any, batches: Any, answer: Any) -> None:
    heard: list[int | str] = []
    for read in (batches, loader):
        try:
            heard.append(len(list(read)))
        except StokerError as error:
            heard.append(f"{type(error).__name__}: {error}")
    answer.send(heard)


# -- memory ------------------------------------------------------------------------------------------------------------


class Paths(Numbers):
    """Many texts in a plain list; fetched by the batch: the sum of their lengths, and the worker's process."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.paths = [f"/data/train/n{index % 1000:08d}/n{index % 1000:08d}_{index}.JPEG" for index in range(count)]

    def __getitems__(self, indices: list[int]) -> Any:
        paths = self.paths
        return [(os.getpid(), sum([len(paths[index]) for index in indices]))]


def paths(count: str, num_workers: str) -> None:
    """Private memory of all workers in kB: after their first batches, and after each of three epochs."""
    dataset = Paths(int(count))
    expected = sum(map(len, dataset.paths))
    loader = DataLoader(
        dataset, 10_000, shuffle=True, num_workers=int(num_workers), collate_fn=lambda samples: samples[0]
    )
    pids: set[int] = set()
    early_kb = None
    for _ in range(3):
        total = 0
        for number, (pid, length) in enumerate(loader):
            total += length
            pids.add(pid)
            if early_kb is None and number == 2 * int(num_workers):
                early_kb = _private_kb(pids)
                say(early_kb)
        assert total == expected
        say(_private_kb(pids))
    say(len(pids))


def _private_kb(pids: set[int]) -> int:
    rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii") for pid in pids]
    lines = [line.split() for rollup in rollups for line in rollup.splitlines() if line.startswith("Private")]
    return sum(int(line[1]) for line in lines)


def keep_batches(count: str) -> None:
    """With 128 descriptors allowed, keep many batches; say how many descriptors are open along the way."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    counts = []
    for batch in DataLoader(Wide(int(count) * 2), batch_size=2, num_workers=2):
        _kept.append(batch)
        if len(_kept) % 200 == 0:
            counts.append(len(list(Path("/proc/self/fd").iterdir())))
    say([len(_kept), sum(int(batch[:, 0].sum()) for batch in _kept), counts])


class Wide(Numbers):
    """Samples large enough for shared memory."""

    def __getitem__(self, index: int) -> Any:
        return torch.full((8192,), index)


class Huge(Numbers):
    """100 MiB each."""

    def __getitem__(self, index: int) -> Any:
        return torch.full((100 << 20,), index, dtype=torch.uint8)


def large_batches() -> None:
    """Batches larger than /dev/shm; what lies there meanwhile."""
    say(os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize)
    seen: set[str] = set()
    sums = []
    for batch in DataLoader(Huge(4), num_workers=2, prefetch_factor=1):
        sums.append(int(batch.sum()) >> 20)
        seen.update(os.listdir("/dev/shm"))  # noqa: PTH208  # the names alone
    say(sums)
    say(sorted(seen))


if __name__ == "__main__":
    chosen: Callable[..., None] = globals()[sys.argv[1]]
    chosen(*sys.argv[2:])
