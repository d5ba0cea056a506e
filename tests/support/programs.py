"""Small training programs that tests run as processes of their own: ``run("break_out", shards)``.

A program prints one JSON value per line. ``leaving`` is the line it prints just before it goes.
"""

from __future__ import annotations

import gc
import json
import logging
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

import stoker
from stoker import ops
from stoker.errors import ClosedError, StokerError
from support.loading import load

DEADLINE_S = 60.0
"""For a whole program: it imports torch, on cores that are busy with other tests."""

LEAVE_S = 4.0
"""For leaving: the promise is 2 s, the rest is for cores that are busy with other tests."""

_ROOT = Path(__file__).parents[2]
_loader: stoker.DataLoader | None = None  # what a script's globals keep alive until the interpreter goes
_blocked = threading.Event()


def command(name: str, *arguments: str) -> list[str]:
    """The command line of a program."""
    return [sys.executable, "-m", "support.programs", name, *arguments]


def environment() -> dict[str, str]:
    """The environment a program needs to find Stoker and the test support.

    One arena for malloc: several keep freed memory for as long as they are there, which hides what grows.
    """
    roots = [str(_ROOT / name) for name in ("loader", "service", "proto", "benchmarks", "tests")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(roots), "MALLOC_ARENA_MAX": "1"}


@contextmanager
def started(command_line: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A program that runs; it is killed behind the block, if it has not ended."""
    program = subprocess.Popen(
        command_line, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield program
    finally:
        program.kill()
        program.communicate()


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. Raises subprocess.TimeoutExpired if it hangs."""
    return subprocess.run(
        command(name, *arguments), env=environment(), capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


@contextmanager
def in_time() -> Iterator[None]:
    """Fail if the block takes longer than leaving may."""
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < LEAVE_S


def stoker_threads() -> list[str]:
    """The names of Stoker's threads in this process."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("stoker")]


def threads_left(timeout_s: float = DEADLINE_S) -> list[str]:
    """The names of Stoker's threads that have not ended by themselves within this time."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        running = [thread for thread in threading.enumerate() if thread.name.startswith("stoker")]
        if not running:
            break
        running[0].join(max(0.0, end - time.monotonic()))
    return stoker_threads()


def say(value: Any) -> None:
    """Print a line that the test reads."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def texts(shards: str, *steps: Any, batch_size: int = 4, **settings: Any) -> stoker.Pipeline:
    """A shuffled pipeline over samples with a label."""
    source = stoker.tar(shards, chunk_bytes=8192)
    return stoker.Pipeline(source, [*steps, ops.Label("cls")], batch_size=batch_size, shuffle=True, **settings)


def block(sample: dict[str, Any]) -> dict[str, Any]:
    """A user's function that never comes back."""
    _blocked.wait()
    return sample


# -- resuming ----------------------------------------------------------------------------------------------------------


def consume_save_and_die(shards: str, path: str, num_batches: str) -> None:
    """Save keys and state after some batches, then be killed."""
    keys: list[str] = []
    loader = load(texts(shards, batch_size=10))
    for _, batch in zip(range(int(num_batches)), loader, strict=False):
        keys += batch["__key__"]
    Path(path).write_text(json.dumps({"keys": keys, "state": loader.state_dict()}), encoding="utf-8")
    os.kill(os.getpid(), signal.SIGKILL)


# -- leaving -----------------------------------------------------------------------------------------------------------


def break_out(shards: str) -> None:
    """Leave the loop; the loader lives until the interpreter goes."""
    global _loader  # noqa: PLW0603  # as a script's variable would
    _loader = load(texts(shards))
    for _ in _loader:
        break
    say("leaving")


def iterator_kept(shards: str) -> None:
    """Go while an iterator is half way, with torch batches in hand."""
    batches = iter(load(texts(shards), output="torch"))
    sys.modules["__main__"].kept = [batches, next(batches)]  # type: ignore[attr-defined]
    say("leaving")


def never_iterated(shards: str) -> None:
    """Make a loader, ask its length, go."""
    global _loader  # noqa: PLW0603  # as a script's variable would
    _loader = load(texts(shards))
    say(stoker_threads())
    say("leaving")


def raise_in_loop(shards: str) -> None:
    """Let an exception of the trainer end the program."""
    for _ in load(texts(shards)):
        say("leaving")
        raise RuntimeError("the trainer's own error")


def forgotten(shards: str) -> None:
    """Drop a loader without closing it."""
    for _ in load(texts(shards)):
        break
    gc.collect()
    say(threads_left())
    say("leaving")


def stuck(shards: str) -> None:
    """Go while a user's function does not come back."""
    global _loader  # noqa: PLW0603  # as a script's variable would
    _loader = load(texts(shards, ops.Map(block)), num_threads=2)
    threading.Thread(target=_wait_for_a_batch, args=(_loader,), daemon=True).start()
    say("leaving")


def _wait_for_a_batch(loader: stoker.DataLoader) -> None:
    with suppress(ClosedError):
        next(iter(loader))


def read(url: str, manifest: str) -> None:
    """Open and read what may stall in the store."""
    say("training")
    with load(stoker.Pipeline(stoker.tar(url, manifest=manifest), [ops.Label("cls")], batch_size=1)) as loader:
        list(loader)


def interrupted(shards: str) -> None:
    """Train until Ctrl-C, as a script without any handling."""
    loader = load(texts(shards))
    while True:
        for _ in loader:
            if not loader.stats()["batches"] % 5:
                say("training")


def interrupted_twice(shards: str) -> None:
    """Wait for a batch that never comes; at the first Ctrl-C, close, and meet the second there."""
    loader = load(texts(shards, ops.Map(block)), num_threads=2)
    try:
        batches = iter(loader)
        say("training")
        next(batches)
    except KeyboardInterrupt:
        say("closing")
        loader.close()
        signal.pause()


# -- forks -------------------------------------------------------------------------------------------------------------


def fork_after_reading(shards: str, options: str = "{}") -> None:
    """Read a batch, fork, and read on in the child, with the parent's iterator and with the loader itself."""
    source = stoker.tar(shards, chunk_bytes=8192, **json.loads(options))
    loader = load(stoker.Pipeline(source, [ops.Label("cls")], batch_size=4, shuffle=True))
    rest = iter(loader)
    next(rest)
    results, answer = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_read_on, args=(loader, rest, answer))
    child.start()
    say(results.recv() if results.poll(DEADLINE_S / 2) else "the child hangs")
    child.join(DEADLINE_S / 4)
    say(child.exitcode)
    say(sum(len(batch["__key__"]) for batch in rest))


def _read_on(loader: stoker.DataLoader, rest: Any, answer: Any) -> None:
    try:
        counts = [sum(len(batch["__key__"]) for batch in batches) for batches in (rest, loader)]
        loader.close()
        answer.send(counts)
    except StokerError as error:
        answer.send(f"{type(error).__name__}: {error}")


# -- manners -----------------------------------------------------------------------------------------------------------


def guest(pictures: str, labels: str) -> None:
    """Say which global settings differ once a loader was used, by name: none should."""
    before = _house()
    steps = [ops.DecodeImage("jpg", to="image"), ops.RandomResizedCrop("image", 24), ops.Map(_draw), ops.Label("cls")]
    num_rows = 0
    for output in ("torch", "numpy"):
        with load(stoker.Pipeline(stoker.tar(pictures), steps, batch_size=4, shuffle=True), output=output) as loader:
            num_rows += sum(len(batch["__key__"]) for batch in loader)
    next(iter(load(texts(labels))))
    after = _house()
    say(num_rows)
    say({name: [before[name], after[name]] for name in before if before[name] != after[name]})


def _draw(sample: dict[str, Any]) -> dict[str, Any]:
    import torch

    drawn = (random.random(), np.random.rand(), float(torch.rand(())))  # noqa: NPY002  # users' code does this
    return {**sample, "drawn": drawn}


def _house() -> dict[str, str]:
    """What a guest may not change."""
    import cv2
    import torch

    root = logging.getLogger()
    return {
        "torch threads": repr((torch.get_num_threads(), torch.get_num_interop_threads())),
        "torch settings": repr((torch.get_default_dtype(), torch.is_grad_enabled(), torch.initial_seed())),
        "OpenCV": repr((cv2.getNumThreads(), cv2.useOptimized())),
        "chance": repr((random.getstate(), np.random.get_state(), torch.get_rng_state().tolist())),  # noqa: NPY002
        "signals": repr([(number, signal.getsignal(number)) for number in sorted(signal.valid_signals())]),
        "logging": repr(
            (root.level, root.handlers, logging.getLogger("stoker").handlers, logging.root.manager.disable)
        ),
        "environment": repr(sorted(os.environ.items())),
        "start method": repr(multiprocessing.get_start_method(allow_none=True)),
        "warnings": repr(warnings.filters),
        "hooks": repr((sys.excepthook, threading.excepthook, sys.unraisablehook, sys.getprofile(), sys.gettrace())),
        "garbage": repr((gc.isenabled(), gc.get_threshold(), gc.get_freeze_count())),
        "interpreter": repr((sys.getswitchinterval(), sys.getrecursionlimit(), sys.path, Path.cwd())),
        "limits": repr([resource.getrlimit(number) for number in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS)]),
        "numpy": repr((np.geterr(), np.get_printoptions())),
    }


# -- memory ------------------------------------------------------------------------------------------------------------


def epochs(shards: str, num_epochs: str) -> None:
    """After each epoch: resident memory in kB, and memory blocks of Python's own."""
    with load(
        texts(shards, batch_size=500, window=4), num_threads=4, prefetch_bytes=1 << 20, read_bytes=1 << 20
    ) as loader:
        for _ in range(int(num_epochs)):
            num_rows = sum(len(batch["__key__"]) for batch in loader)
            gc.collect()
            status = Path("/proc/self/status").read_text(encoding="ascii")
            say([num_rows, int(status.partition("RssAnon:")[2].split()[0]), sys.getallocatedblocks()])


def keep_batches(shards: str, num_batches: str) -> None:
    """With 128 descriptors allowed, keep many torch batches; say how many descriptors are open along the way."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    kept: list[Any] = []
    counts = []
    with load(texts(shards), output="torch") as loader:
        while len(kept) < int(num_batches):
            for batch in loader:
                kept.append(batch)
                if len(kept) % 100 == 0:
                    counts.append(len(list(Path("/proc/self/fd").iterdir())))
    say([len(kept), sum(int(batch["cls"].sum()) for batch in kept), counts])


if __name__ == "__main__":
    chosen: Callable[..., None] = globals()[sys.argv[1]]
    chosen(*sys.argv[2:])
