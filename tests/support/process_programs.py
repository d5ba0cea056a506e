"""Small programs around a loader with worker processes, which tests run as processes of their own.

See :mod:`support.programs`; what is printed is one JSON value per line.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stoker import ops
from stoker.testing import assert_equal_batches, keys_of
from support.loading import load
from support.programs import DEADLINE_S, environment, say, texts

_kept: list[Any] = []  # what a script's globals keep alive until the interpreter goes


def command(name: str, *arguments: str) -> list[str]:
    """The command line of a program."""
    return [sys.executable, "-m", "support.process_programs", name, *arguments]


def start(name: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a program, its output to be read."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command(name, *arguments), env=environment(), stdout=pipe, stderr=pipe, text=True)


def noting_pids(folder: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function of the user's, a closure, that leaves a sample as it is and a file named after the process."""

    def note(sample: dict[str, Any]) -> dict[str, Any]:
        (folder / str(os.getpid())).touch()
        return sample

    return note


def pids_in(folder: Path) -> set[int]:
    """The processes that have called :func:`noting_pids`."""
    return {int(file.name) for file in folder.iterdir()}


def is_alive(pid: int) -> bool:
    """Whether a process is there that is more than a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] not in "ZX"


def wait_until(is_so: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    """Look again and again until it is so. Raises AssertionError at the deadline."""
    tick = threading.Event()
    for _ in range(int(deadline_s / 0.01)):
        if is_so():
            return
        tick.wait(0.01)
    raise AssertionError("it did not become so in time")


# -- programs ----------------------------------------------------------------------------------------------------------


def break_out(shards: str, folder: str) -> None:
    """Leave the loop half way; the loader lives until the interpreter goes."""
    loader = load(texts(shards, ops.Map(noting_pids(Path(folder)))), num_workers=2)
    _kept.append(loader)
    batches = iter(loader)
    _kept.append([batches, next(batches), next(batches)])
    say("leaving")


def forgotten(shards: str, folder: str) -> None:
    """Forget the loader and go on; its workers leave."""
    loader = load(texts(shards, ops.Map(noting_pids(Path(folder)))), num_workers=2)
    for _ in zip(range(5), loader, strict=False):
        pass
    del loader
    gc.collect()
    wait_until(lambda: not any(map(is_alive, pids_in(Path(folder)))))
    say("leaving")


def fork_reads_on(shards: str, _folder: str) -> None:
    """Read some batches, fork, and read on in both."""
    pipeline = texts(shards)
    with load(pipeline) as alone:
        expected = keys_of(alone)
    loader = load(pipeline, num_workers=2)
    batches = iter(loader)
    keys = keys_of([next(batches), next(batches)])
    child = os.fork()
    keys += keys_of(batches)
    if not child:
        say(["child", keys == expected])
        loader.close()
        os._exit(0)
    os.waitpid(child, 0)
    keys_again = keys_of(loader)
    say(["parent", keys == expected, len(keys_again) == len(expected)])


def interrupted(shards: str, folder: str) -> None:
    """Be interrupted by Ctrl-C while a batch is waited for, and go on."""
    entered, released = Path(folder, "entered"), Path(folder, "released")

    def hold(sample: dict[str, Any]) -> dict[str, Any]:
        entered.touch()
        wait_until(released.exists)
        return sample

    with load(texts(shards)) as alone:
        expected = list(alone)
    with load(texts(shards, ops.Map(hold)), num_workers=2) as loader:
        state = loader.state_dict()
        try:
            next(iter(loader))
        except KeyboardInterrupt:
            say("interrupted")
        released.touch()
        loader.load_state_dict(state)
        assert_equal_batches(list(loader), expected)
    say("leaving")


if __name__ == "__main__":
    # by its name as a module: what __main__ defines goes by value, which is what a user's script does
    program: Callable[..., None] = globals()[sys.argv[1]]
    program(*sys.argv[2:])
