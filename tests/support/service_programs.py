"""Small training programs on a service, which tests run as processes of their own; see ``support/programs.py``."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import stoker
from stoker import ops
from stoker.errors import ClosedError, StokerError
from support.cluster import Child, Cluster
from support.loading import load
from support.programs import DEADLINE_S, say, texts

_loader: stoker.DataLoader | None = None  # what a script's globals keep alive until the interpreter goes


def _made(service: str, shards: str, **options: Any) -> stoker.DataLoader:
    global _loader  # noqa: PLW0603  # as a script's variable would
    _loader = load(texts(shards), service=service, **options)
    return _loader


# -- leaving -----------------------------------------------------------------------------------------------------------


def break_out(service: str, shards: str) -> None:
    """Leave the loop; the loader lives until the interpreter goes."""
    for _ in _made(service, shards):
        break
    say("leaving")


def iterator_kept(service: str, shards: str) -> None:
    """Go while an iterator is half way, with torch batches in hand."""
    batches = iter(_made(service, shards, output="torch"))
    sys.modules["__main__"].kept = [batches, next(batches)]  # type: ignore[attr-defined]
    say("leaving")


def never_iterated(service: str, shards: str) -> None:
    """Make a loader, ask its length, go."""
    len(_made(service, shards))
    say("leaving")


def raise_in_loop(service: str, shards: str) -> None:
    """Let an exception of the trainer end the program."""
    for _ in load(texts(shards), service=service):
        say("leaving")
        raise RuntimeError("the trainer's own error")


def stuck(service: str, shards: str) -> None:
    """Go while another thread waits for a batch that does not come: the test has frozen the workers."""
    loader = _made(service, shards, prefetch_bytes=1)
    batches = iter(loader)
    next(batches)
    say("training")
    sys.stdin.readline()
    threading.Thread(target=_drained, args=(batches,), daemon=True).start()
    say("leaving")


def closed_while_stuck(service: str, shards: str) -> None:
    """Close while another thread waits for a batch that does not come."""
    loader = _made(service, shards, prefetch_bytes=1)
    batches = iter(loader)
    next(batches)
    say("training")
    sys.stdin.readline()
    waiter = threading.Thread(target=_drained, args=(batches,))
    waiter.start()
    say("leaving")
    loader.close()
    waiter.join()


def _drained(batches: Any) -> None:
    with suppress(ClosedError):
        for _ in batches:
            pass


def interrupted(service: str, shards: str) -> None:
    """Train until Ctrl-C, as a script without any handling."""
    loader = load(texts(shards), service=service)
    while True:
        for _ in loader:
            if not loader.stats()["batches"] % 5:
                say("training")


def interrupted_twice(service: str, shards: str) -> None:
    """Wait for a batch that never comes; at the first Ctrl-C, close, and meet the second there."""
    loader = load(texts(shards), service=service, prefetch_bytes=1)
    try:
        batches = iter(loader)
        next(batches)
        say("training")
        sys.stdin.readline()
        say("waiting")
        for _ in batches:
            pass
    except KeyboardInterrupt:
        say("closing")
        loader.close()
        signal.pause()


# -- forks -------------------------------------------------------------------------------------------------------------


def fork_after_reading(service: str, shards: str) -> None:
    """Read a batch, fork, and read on in the child; then read the rest here."""
    loader = load(texts(shards), service=service)
    rest = iter(loader)
    next(rest)
    results, answer = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_read_on, args=(loader, rest, answer))
    child.start()
    say(results.recv() if results.poll(DEADLINE_S / 2) else "the child hangs")
    child.join(DEADLINE_S / 4)
    say(child.exitcode)
    say(sum(len(batch["__key__"]) for batch in rest))


def fork_and_load(service: str, shards: str) -> None:
    """Fork before any loader is made, and make one in the child and one here."""
    results, answer = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_load_all, args=(service, shards, answer))
    child.start()
    say(results.recv() if results.poll(DEADLINE_S / 2) else "the child hangs")
    child.join(DEADLINE_S / 4)
    say(child.exitcode)
    with load(texts(shards), service=service) as loader:
        say(sum(len(batch["__key__"]) for batch in loader))


def _read_on(loader: stoker.DataLoader, rest: Any, answer: Any) -> None:
    try:
        counts = [sum(len(batch["__key__"]) for batch in batches) for batches in (rest, loader)]
        loader.close()
        answer.send(counts)
    except StokerError as error:
        answer.send(f"{type(error).__name__}: {error}")


def _load_all(service: str, shards: str, answer: Any) -> None:
    with load(texts(shards), service=service) as loader:
        answer.send(sum(len(batch["__key__"]) for batch in loader))


# -- memory ------------------------------------------------------------------------------------------------------------


def load_large(path: str, folder: str) -> None:
    """With a cluster of its own, load batches of two large arrays; say how large /dev/shm is and what is left there."""
    pipeline = stoker.Pipeline(stoker.tar(path), [ops.DecodeNumpy("npy", to="array")], batch_size=2, lanes=1)
    shm = os.statvfs("/dev/shm")
    found: list[list[int]] = []
    with Cluster(Path(folder), 1) as cluster, load(pipeline, service=cluster.url) as loader:
        for batch in loader:
            found += [[int(row[0]), int(row[-1])] for row in batch["array"]]
    say([shm.f_frsize * shm.f_blocks, found, os.listdir("/dev/shm")])  # noqa: PTH208


def say_environment(service: str, shards: str) -> None:
    """Load an epoch; say which CUDA libraries are mapped and which devices are open."""
    with load(texts(shards), service=service) as loader:
        num_rows = sum(len(batch["__key__"]) for batch in loader)
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    say([num_rows, "libcuda" in maps, "/dev/nvidia" in maps])


def start_a_trainer(log: str) -> None:
    """Start a trainer, say its process id, and wait."""
    child = Child("trainer", Path(log), "support.trainer", [], takes_orders=True)
    say(child.pid)
    sys.stdin.read()


if __name__ == "__main__":
    chosen: Callable[..., None] = globals()[sys.argv[1]]
    chosen(*sys.argv[2:])
