"""A process that holds an arena, or maps one: told what to do by lines on stdin, answers by lines on stdout.

`host` prints the socket's name and where its bytes lie; `view NAME OFFSET` prints the bytes' sum at the start and
again for each line, first in a forked child.
"""

from __future__ import annotations

import os
import sys

import pyarrow as pa

from stoker.memory.arena import Arena
from stoker_service.transport.arena_host import ArenaHost
from stoker_service.transport.arena_view import ArenaView

NUM_BYTES = 1_000_000


def tell(*words: object) -> None:
    """Write a line."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def host() -> None:
    """Serve a block of ones until stdin ends."""
    arena = Arena.create(16 << 20)
    block = arena.allocate(NUM_BYTES)
    assert block is not None
    block[:] = 1
    with ArenaHost(arena) as served:
        tell(served.socket_name, arena.offset_of(pa.py_buffer(block)))
        sys.stdin.read()


def view(socket_name: str, offset: int) -> None:
    """Sum the block for each line of stdin."""
    mapped = ArenaView.open(socket_name, 5.0)
    tell(int(mapped.view(offset, NUM_BYTES).sum()))
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            tell(int(mapped.view(offset, NUM_BYTES).sum()))
            os._exit(0)
        os.waitpid(child, 0)
        tell(int(mapped.view(offset, NUM_BYTES).sum()))


if __name__ == "__main__":
    if sys.argv[1] == "host":
        host()
    else:
        view(sys.argv[2], int(sys.argv[3]))
