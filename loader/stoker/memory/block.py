"""The end of the last view of a piece of memory, noticed without running Python code."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


class Block:
    """The owner that NumPy sees at the end of every chain of views; keeps ``space``, whose memory it is."""

    __slots__ = ("__array_interface__", "__weakref__", "_space")

    def __init__(self, space: object, address: int, num_bytes: int) -> None:
        self._space = space
        self.__array_interface__: dict[str, Any] = {
            "data": (address, False),
            "shape": (num_bytes,),
            "typestr": "|u1",
            "version": 3,
        }


class Ending(weakref.ref[Block]):
    """Knows the range of a block, and is handed to a function when the block ends, if it is kept until then.

    That function is a ``deque.append``, so that no Python code runs wherever a batch is dropped; see the buffer pool.
    """

    __slots__ = ("num_bytes", "start")
    start: int
    num_bytes: int


def watch(block: Block, tell: Callable[[Any], None], start: int, num_bytes: int) -> Ending:
    """Have ``tell`` told of the end of a block, which is the range ``[start, start + num_bytes)``."""
    ending = Ending(block, tell)
    ending.start, ending.num_bytes = start, num_bytes
    return ending
