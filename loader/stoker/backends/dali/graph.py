"""A DALI pipeline for one chain of steps."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stoker.backends.dali.steps import Argument, Node, Placed, library
from stoker.ops.geometry import Window

Entry = Literal["file", "pixels", "wave"]

_REGION = (Argument(np.int32, 1), Argument(np.int32, 1))


@dataclass(frozen=True, slots=True)
class Form:
    """What decides a graph: how pictures enter it, their dtype, the steps.

    ``entry_on_gpu``: a file is decoded there ("mixed" in DALI's words). What is on the GPU once stays there.
    """

    entry: Entry
    dtype: str
    chain: tuple[Placed, ...]
    entry_on_gpu: bool

    @property
    def uses_gpu(self) -> bool:
        return self.entry_on_gpu or any(placed.on_gpu for placed in self.chain)


@dataclass(frozen=True, slots=True)
class Item:
    """One picture for a graph: the bytes of a file and the window of it to decode, or pixels; its numbers."""

    content: NDArray[Any]
    window: Window
    values: tuple[tuple[Any, ...], ...]


class Graph:
    """A built pipeline; for one thread at a time."""

    def __init__(self, form: Form, max_rows: int, num_threads: int, device_index: int | None) -> None:
        """Raises RuntimeError if DALI cannot build it."""
        self.form = form
        self._pid = os.getpid()
        self._inputs: list[tuple[str, type[np.generic]]] = []
        self._pipeline = library("pipeline").Pipeline(
            batch_size=max_rows,
            num_threads=num_threads,
            device_id=device_index,
            prefetch_queue_depth=1,
            exec_async=False,
            exec_pipelined=False,
            enable_memory_stats=True,
        )
        _pipelines.add(self._pipeline)
        with self._pipeline:
            self._pipeline.set_outputs(self._nodes())
        self._pipeline.build()

    def __del__(self, _getpid: Callable[[], int] = os.getpid) -> None:  # the module's names may be gone by now
        if _getpid() != self._pid and hasattr(self, "_pipeline"):
            _keep_for_ever(self._pipeline)

    def run(self, items: Sequence[Item]) -> Any:
        """Make the pictures; a TensorListCPU or TensorListGPU, complete, and valid until the next run.

        Raises RuntimeError with DALI's words, which do not tell whose fault it is.
        """
        columns: list[list[Any]] = [[item.content for item in items]]
        if self.form.entry == "file":
            columns += [
                [(item.window.top, item.window.left) for item in items],
                [(item.window.height, item.window.width) for item in items],
            ]
        for index, (step, _) in enumerate(self.form.chain):
            columns += [[item.values[index][k] for item in items] for k in range(len(step.arguments))]
        for (name, dtype), column in zip(self._inputs, columns, strict=True):
            self._pipeline.feed_input(name, [np.asarray(value, dtype) for value in column])
        (made,) = self._pipeline.run()
        return made

    @property
    def device_bytes(self) -> int:
        """What its operators hold on the GPU for their results."""
        stats = self._pipeline.executor_statistics()
        return sum(sum(of["reserved_memory_size"]) for name, of in stats.items() if not name.startswith("CPU_"))

    def _nodes(self) -> Node:
        fn, types = library("fn"), library("types")
        form = self.form
        if form.entry == "file":
            file = self._input(Argument(np.uint8, 1))
            start, shape = (self._input(argument) for argument in _REGION)
            x = fn.decoders.image_slice(
                file,
                device="mixed" if form.entry_on_gpu else "cpu",
                start=start,
                shape=shape,
                axes=(0, 1),
                output_type=types.RGB,
                adjust_orientation=False,
                jpeg_fancy_upsampling=True,
            )
        elif form.entry == "wave":
            x = self._input(Argument(np.float32, 1))
        else:
            x = self._input(Argument(np.dtype(form.dtype).type, 3), layout="HWC")
        is_on_gpu = form.entry_on_gpu
        for step, on_gpu in form.chain:
            arguments = [self._input(argument) for argument in step.arguments]
            if on_gpu and not is_on_gpu:
                x, is_on_gpu = x.gpu(), True
            x = step.add(x, arguments)
        return x

    def _input(self, argument: Argument, layout: str | None = None) -> Node:
        fn, types = library("fn"), library("types")
        name = f"input_{len(self._inputs)}"
        self._inputs.append((name, argument.dtype))
        kind = types.to_dali_type(np.dtype(argument.dtype).name)
        return fn.external_source(name=name, dtype=kind, ndim=argument.ndim, layout=layout)


_pipelines: weakref.WeakSet[Any] = weakref.WeakSet()
"""All that are not ended yet, those among them that nothing but the garbage collector knows of any more."""


def _keep_for_ever(pipeline: Any) -> None:
    """Never let it end: in a fork that would wait for threads which the fork left behind."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pipeline))


def _leave_to_parent() -> None:
    for pipeline in list(_pipelines):
        _keep_for_ever(pipeline)


os.register_at_fork(after_in_child=_leave_to_parent)
