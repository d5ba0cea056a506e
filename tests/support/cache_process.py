"""A process with a cache: `read` prints its loads, `write` goes on for ever, `crash` is killed at many lines."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from stoker.storage.cache import CacheOptions, ChunkCache
from stoker.storage.use import Use
from support.caching import Origin, body, bytes_in, files_in, ranges, stored

_chance = random.Random(5)
SIZES = [_chance.randrange(1000, 60_000) for _ in range(60)]
NUM_RANGES = len(SIZES)
_CACHE_CODE = f"{os.sep}storage{os.sep}cache{os.sep}"


def environment() -> dict[str, str]:
    """What a process needs to find what this one finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def start(*arguments: object) -> subprocess.Popen[str]:
    """Run this module: what to do, the folder, its budget, a seed, the job's name."""
    command = [sys.executable, "-m", "support.cache_process", *map(str, arguments)]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)


def result(process: subprocess.Popen[str]) -> int:
    """The number that it prints last."""
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return int(output.split()[-1])


@contextlib.contextmanager
def full_disk(num_bytes: int) -> Iterator[None]:
    """No file of this process may grow beyond ``num_bytes``: the kernel refuses the write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def check(folder: Path, num_bytes: int) -> None:
    """Everything is read right, the budget holds, and all of it can be used."""
    cache = _open(folder, num_bytes)
    for epoch in range(2):
        for index, wanted in enumerate(ranges(SIZES)):
            found = cache.read([wanted], [Use("checker", 1e6 + epoch, 1e6 + epoch + 1 - index / 1e3)], Origin())
            assert found == [body(wanted)]
            assert bytes_in(folder) <= num_bytes
    held = cache.stats()
    assert held.held_disk_bytes == bytes_in(folder)
    assert held.held_files == len(files_in(folder))
    assert held.held_disk_bytes >= num_bytes - 2 * max(SIZES)
    assert not list((folder / "parts").iterdir())
    cache.close()


def _open(folder: Path, num_bytes: int) -> ChunkCache:
    return ChunkCache(CacheOptions(str(folder), disk_bytes=num_bytes, reserve_bytes=0))


def _read(folder: Path, num_bytes: int, seed: str, job: str) -> None:
    cache = _open(folder, num_bytes)
    origin = Origin()
    for index in random.Random(seed).sample(range(NUM_RANGES), NUM_RANGES):
        wanted = ranges(SIZES)[index]
        assert cache.read([wanted], [Use(job, index / NUM_RANGES)], origin) == [body(wanted)]
    cache.close()
    print(origin.loads.total())  # noqa: T201


def _write(folder: Path, num_bytes: int, seed: str, job: str) -> None:
    cache = _open(folder, num_bytes)
    chance = random.Random(seed)
    wanted = ranges(SIZES)
    now = 0.0
    while True:
        now += 0.001
        some = chance.sample(wanted, 3)
        found = cache.read(some, [Use(job, now, now + chance.random()) for _ in some], Origin())
        assert found == [body(each) for each in some]
        print("read", flush=True)  # noqa: T201


def _crash(folder: Path) -> None:
    """Fork a child that is killed at the n-th line that it runs of the cache's code, for many n."""
    num_bytes = stored(SIZES) // 4
    _fill(folder, num_bytes, 0)
    num_crashes = num_lines = 0
    chance = random.Random(3)
    while True:
        child = os.fork()
        if child == 0:
            _die_at(num_lines)
            _fill(folder, num_bytes, num_crashes)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            break
        assert bytes_in(folder) <= num_bytes, num_lines
        num_crashes += 1
        num_lines += chance.randrange(1, 30)
        if num_crashes % 10 == 0:
            check(folder, num_bytes)
    check(folder, num_bytes)
    print(num_crashes, "crashes in", num_lines, "lines")  # noqa: T201


def _fill(folder: Path, num_bytes: int, seed: int) -> None:
    cache = _open(folder, num_bytes)
    some = random.Random(seed).sample(ranges(SIZES), 6)
    found = cache.read(some, [Use("filler", float(seed), seed + 0.5) for _ in some], Origin())
    assert found == [body(each) for each in some]
    cache.close()


def _die_at(num_lines: int) -> None:
    left = num_lines

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if _CACHE_CODE not in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


if __name__ == "__main__":
    if sys.argv[1] == "crash":
        _crash(Path(sys.argv[2]))
    else:
        {"read": _read, "write": _write}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5])
