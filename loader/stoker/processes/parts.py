"""What is large in an object, apart from its pickle."""

from __future__ import annotations

import logging
import pickle
from functools import lru_cache, partial
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from stoker.code.blame import Nowhere, Trial
from stoker.code.by_value import Pickler
from stoker.processes.arrays import reduce_array
from stoker.processes.columns import MIN_ROWS, Layout, NotFlatError, columns_by_block, layout_of
from stoker.processes.shared_list import SharedList, WrittenList
from stoker.processes.storages import content_of, storage_types, untyped

MIN_BUFFER_BYTES: Final = 256
"""Smaller buffers stand in the pickle."""

_LOG: Final = logging.getLogger("stoker")
_LISTS: Final = frozenset([list, SharedList, WrittenList])

Reference: TypeAlias = "int | tuple[int, Any]"
"""Stands in the pickle for a large part: the number of a list, or of a storage with the dtype that it had."""


class Sink(Protocol):
    """Where the parts of an object go."""

    def write(self, written: Any, /) -> Any:
        """A piece of the pickle."""

    def take_buffer(self, content: memoryview) -> None:
        """The next buffer of the pickle."""

    def take_storage(self, content: memoryview) -> None:
        """The next storage of tensors."""

    def take_list(self, items: Any, layout: Layout) -> None:
        """The next list of plain values. Raises NotFlatError, with all as it was, if it cannot be taken as such."""


def take_apart(value: Any, sink: Sink, *, ships_modules: bool) -> None:
    """Pickle to a sink; raises whatever a part raises that cannot be pickled."""
    pickler = _PartsPickler(sink, ships_modules=ships_modules)
    try:
        pickler.dump(value)
    finally:
        pickler.clear_memo()  # an error's trace may keep the pickler; it should not keep the object, too


class _PartsPickler(Pickler):
    def __init__(self, sink: Sink, *, ships_modules: bool) -> None:
        super().__init__(sink, ships_modules=ships_modules, buffer_callback=partial(_take_buffer, sink))
        self._sink = sink
        self._storage_types = storage_types()
        self._storages: dict[int, tuple[int, Any]] = {}  # by address, with the storage that keeps it
        self._lists: dict[int, tuple[int | None, Any]] = {}
        self._num_lists = 0

    def persistent_id(self, value: Any) -> Reference | None:
        """Asked about every part, unlike all else that a pickler can be told: plain lists are its own business."""
        kind = type(value)
        if kind in _LISTS:
            return self._list(value)
        return self._storage(value) if kind in self._storage_types else None

    def reducer_override(self, value: Any) -> Any:
        """Only arrays are other than in any pickle of code."""
        if isinstance(value, np.ndarray) and (reduced := reduce_array(value)) is not NotImplemented:
            return reduced
        return super().reducer_override(value)

    def _list(self, items: Any) -> int | None:
        if len(items) < MIN_ROWS:
            return None
        if id(items) not in self._lists:
            # the items are kept, so that no other list gets the address meanwhile
            self._lists[id(items)] = self._taken(items), items
        return self._lists[id(items)][0]

    def _taken(self, items: Any) -> int | None:
        layout = layout_of(items)
        if layout is None:
            return None
        try:
            self._sink.take_list(items, layout)
        except NotFlatError:
            return None
        self._num_lists += 1
        return self._num_lists - 1

    def _storage(self, value: Any) -> Reference:
        storage, dtype = untyped(value)
        if storage._cdata not in self._storages:
            if storage.is_shared():
                _tell_of_shared_memory()
            self._storages[storage._cdata] = len(self._storages), storage
            self._sink.take_storage(content_of(storage))
        return self._storages[storage._cdata][0], dtype


@lru_cache(maxsize=1)
def _tell_of_shared_memory() -> None:
    _LOG.warning(
        "a dataset holds a tensor in shared memory (share_memory_()): workers get a copy of it as it is now; "
        'multiprocessing_context="fork" shares it'
    )


def _take_buffer(sink: Sink, buffer: pickle.PickleBuffer) -> bool:
    """Say whether a buffer stays in the pickle.

    No method of the pickler: that would make a ring of it and its memo, where buffers are, and Python crashes when its
    collector clears a memoryview whose memory is lent.
    """
    content = buffer.raw()
    if content.nbytes < MIN_BUFFER_BYTES:
        return True
    sink.take_buffer(content)
    return False


class NoSink(Nowhere):
    """Takes all and keeps nothing: to find out whether an object can be taken apart. Looks at each long list once."""

    def __init__(self, until_s: float, known: dict[int, bool]) -> None:
        super().__init__(until_s)
        self._known = known

    def take_buffer(self, content: memoryview) -> None:
        """Any buffer will do."""

    def take_storage(self, content: memoryview) -> None:
        """Any storage will do."""

    def take_list(self, items: Any, layout: Layout) -> None:
        """Plain values can always be pickled, in columns or not."""
        if id(items) not in self._known:
            self._known[id(items)] = self._is_flat(items, layout)
        if not self._known[id(items)]:
            raise NotFlatError

    def _is_flat(self, items: Any, layout: Layout) -> bool:
        try:
            for _ in columns_by_block(items, layout):
                self.check()
        except NotFlatError:
            return False
        return True


def trial_of(*, ships_modules: bool) -> Trial:
    """For :func:`stoker.code.blame.blame_for`: takes objects apart without reading what is large."""
    known: dict[int, bool] = {}

    def trial(value: Any, until_s: float) -> None:
        take_apart(value, NoSink(until_s, known), ships_modules=ships_modules)

    return trial
