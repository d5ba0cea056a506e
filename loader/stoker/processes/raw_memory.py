"""Bytes at an address, as an array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class _Memory:
    """What NumPy takes as the owner of the bytes."""

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, address: int, num_bytes: int, *, owner: object, read_only: bool) -> None:
        self._owner = owner
        self.__array_interface__: dict[str, Any] = {
            "data": (address, read_only),
            "shape": (num_bytes,),
            "typestr": "|u1",
            "version": 3,
        }


def bytes_at(address: int, num_bytes: int, *, owner: object, read_only: bool = False) -> NDArray[np.uint8]:
    """The bytes as an array that keeps ``owner``, which must keep the memory."""
    return np.asarray(_Memory(address, num_bytes, owner=owner, read_only=read_only))
