"""Measures how long the process holds Python's GIL, by looking at the lock itself from outside.

A child process reads the lock's ``locked`` word in our memory (``/proc/<pid>/mem``) at random moments, some thousand
times a second. The share of readings that find it locked, times the elapsed time, is the GIL time of all threads
together; nothing in the measured threads changes. A look from inside would need the GIL itself.

The word is found by its neighbours: CPython 3.11 to 3.14 keep ``interval`` (µs), ``last_holder`` and ``locked`` one
after the other inside ``_PyRuntime`` (``struct _gil_runtime_state``, Include/internal/pycore_gil.h), and the first two
are known to whoever holds the lock. Linux only; a free-threaded build has no such lock.
"""

from __future__ import annotations

import ctypes
import math
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

MARK_INTERVAL_US = 4321
PAUSE_S = 2e-4
MAX_RUNTIME_BYTES = 1 << 20
MAX_TRIES = 100
PR_SET_PTRACER = 0x59616D61


@dataclass(slots=True)
class GilUse:
    """How the lock was found. ``held_s`` is the time that the threads of this process held it, together."""

    num_readings: int = 0
    num_locked: int = 0
    elapsed_s: float = 0.0

    @property
    def held_share(self) -> float:
        return self.num_locked / self.num_readings if self.num_readings else float("nan")

    @property
    def held_s(self) -> float:
        return self.held_share * self.elapsed_s

    @property
    def error_s(self) -> float:
        """Standard error of ``held_s`` from the number of readings alone."""
        share = self.held_share
        return self.elapsed_s * math.sqrt(share * (1 - share) / max(1, self.num_readings))


@contextmanager
def watch() -> Iterator[GilUse]:
    """Measure GIL use inside the ``with`` block; the result is filled in at its end.

    Raises RuntimeError if the lock is not found, or if the system does not let a child read our memory.
    """
    address = locked_address()
    _let_children_read_us()
    use = GilUse()
    command = [sys.executable, "-S", "-E", __file__, str(os.getpid()), str(address)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        _expect_ready(reader)
        started = time.perf_counter()
        try:
            yield use
        finally:
            counted, _ = reader.communicate()
            use.elapsed_s = time.perf_counter() - started  # until the last reading, which may come late
            use.num_readings, use.num_locked = map(int, counted.split())


@dataclass(frozen=True, slots=True)
class GilCost:
    """GIL time of one sample, all threads together, with the standard error of its measurement, in microseconds."""

    per_sample_us: float
    error_us: float
    held_share: float


def per_sample(batches: Iterator[int], num_queued: int, num_batches: int) -> GilCost:
    """Measure the GIL time of one sample; ``batches`` yields numbers of rows, ``num_queued`` of them may be made."""
    for _ in range(num_queued):
        next(batches)
    with watch() as use:
        num_samples = sum(next(batches) for _ in range(num_batches))
    return GilCost(1e6 * use.held_s / num_samples, 1e6 * use.error_s / num_samples, use.held_share)


def known_loads(seconds: float = 0.5) -> dict[str, float]:
    """Return the held share that :func:`watch` finds for a Python loop (1 is right) and for sleeping (0 is)."""
    with watch() as busy:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass
    with watch() as asleep:
        time.sleep(seconds)
    return {"busy_loop_share": busy.held_s / seconds, "sleep_share": asleep.held_s / seconds}


def locked_address() -> int:
    """Return the address of the lock's ``locked`` word.

    It is looked for by what stands before it; when another thread takes the lock meanwhile, again.
    """
    start = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
    get_thread_state = ctypes.pythonapi.PyThreadState_Get
    get_thread_state.restype = ctypes.c_void_p
    before = sys.getswitchinterval()
    sys.setswitchinterval(MARK_INTERVAL_US * 1e-6)
    try:
        pattern = struct.pack("<QQ", MARK_INTERVAL_US, get_thread_state())
        tries = (_own_memory(start).find(pattern) for _ in range(MAX_TRIES))
        found = next((place for place in tries if place >= 0), -1)
    finally:
        sys.setswitchinterval(before)
    if found < 0:
        raise RuntimeError(f"Python {sys.version.split()[0]}: the GIL is not where CPython 3.11 to 3.14 keep it")
    return start + found + len(pattern)


def _own_memory(start: int) -> bytes:
    """Read our memory from ``start`` on, up to where no more is mapped; asks the kernel, so it cannot crash."""
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        return os.pread(memory, MAX_RUNTIME_BYTES, start)
    finally:
        os.close(memory)


def _let_children_read_us() -> None:
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)  # fails where Yama is off, and there it is not needed


def _expect_ready(reader: subprocess.Popen[str]) -> None:
    if reader.stdout is None or reader.stdout.readline() != "ready\n":
        raise RuntimeError("a child process may not read /proc/<pid>/mem here; see kernel.yama.ptrace_scope")


def _read_until_told(pid: int, address: int) -> None:
    """Run in the child: read the word at random moments until stdin closes, then print the counts."""
    import random
    import select

    num_readings = num_locked = 0
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    os.pread(memory, 4, address)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not select.select([sys.stdin], [], [], random.uniform(0.5, 1.5) * PAUSE_S)[0]:
        num_readings += 1
        num_locked += os.pread(memory, 4, address) != b"\0\0\0\0"
    sys.stdout.write(f"{num_readings} {num_locked}\n")


if __name__ == "__main__":
    _read_until_told(int(sys.argv[1]), int(sys.argv[2]))
