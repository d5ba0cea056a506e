"""Runs groups of pictures through DALI, and finds out whose fault it was when a run fails."""

from __future__ import annotations

import importlib
import logging
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from stoker.backends.cpu.jpeg import JpegSource
from stoker.backends.dali.graph import Entry, Form, Graph, Item
from stoker.backends.dali.picture import DaliPicture, DaliWrite, WaveSource
from stoker.backends.dali.steps import Placed, library
from stoker.backends.options import Backend
from stoker.errors import DeviceLostError, SampleError, SpecError
from stoker.sample import Sample, Write
from stoker.streams import beside

_LOG = logging.getLogger("stoker")

_Row: TypeAlias = tuple[int, DaliWrite, Item]
"""The number of a write among those to be made, the write, what goes into DALI for it."""

_MAX_GRAPHS = 8
"""Built pipelines that are kept: a program has one or two chains, with few entries each."""

_GROUP_BYTES = 256 << 20
"""Pixels that go into one run, at most, but for a single picture."""

_OUT_OF_MEMORY = ("out of memory", "bad_alloc", "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY")
_LOST = (
    "illegal memory access",
    "cudaErrorIllegalAddress",
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "unspecified launch failure",
    "cudaErrorLaunchFailure",
    "device-side assert",
    "cudaErrorDevicesUnavailable",
    "CUDA_ERROR_UNKNOWN",
)
"""What DALI's text has when the process's context on the GPU is of no use any more."""


class Runner:
    """The :class:`stoker.sample.Gatherer` of one program. On a GPU all threads and lanes share its pipelines, one run
    at a time, while the others prepare theirs; on the CPU each thread has its own, of one thread.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._lock = threading.Lock()
        self._shared: OrderedDict[Form, Graph] = OrderedDict()
        self._mine = threading.local()
        self._pid = os.getpid()

    # -- Gatherer -----------------------------------------------------------------------------------------------------

    def make(self, writes: Sequence[Write]) -> list[SampleError | None]:
        """See :class:`stoker.sample.Gatherer`."""
        verdicts: list[SampleError | None] = [None] * len(writes)
        groups: dict[Form, list[_Row]] = {}
        for index, write in enumerate(writes):
            try:
                if isinstance(write, DaliWrite):
                    self._sort(index, write, groups)
                else:
                    write()
            except SampleError as error:
                verdicts[index] = error
        for form, group in groups.items():
            for part in _parts(group, self.backend.rows_together):
                for index, verdict in self._made(form, part):
                    verdicts[index] = verdict
        return verdicts

    def make_fields(self, samples: Sequence[Sample]) -> None:
        """See :class:`stoker.sample.Gatherer`. A picture that was only decoded, or not even that, is left alone."""
        found = [
            (sample, name, value)
            for sample in samples
            for name, value in sample.fields.items()
            if isinstance(value, DaliPicture) and value.chain
        ]
        arrays = [np.empty(value.shape, value.dtype) for _, _, value in found]
        writes = [value.writer(array) for (_, _, value), array in zip(found, arrays, strict=True)]
        for (sample, name, _), array, error in zip(found, arrays, self.make(writes), strict=True):
            if error is None:
                sample.fields[name] = array

    # -- before a run -------------------------------------------------------------------------------------------------

    def _sort(self, index: int, write: DaliWrite, groups: dict[Form, list[_Row]]) -> None:
        """Make a picture that needs no DALI, or put it to those of its form. Raises SampleError if it is bad."""
        picture = write.picture
        file = self._file(picture)
        if file is not None:
            content, entry_on_gpu = np.frombuffer(file, np.uint8), self._is_on_gpu("DecodeImage")
        else:
            content, entry_on_gpu = picture.source.reader(picture.window)(), False
            if not picture.chain:
                _place_all([write.out], [content])
                return
            content = content.copy()  # the next read of this thread overwrites it
        entry: Entry = "file" if file is not None else "wave" if isinstance(picture.source, WaveSource) else "pixels"
        form = self._form(picture, entry, entry_on_gpu=entry_on_gpu)
        groups.setdefault(form, []).append((index, write, Item(content, picture.window, picture.values)))

    def _file(self, picture: DaliPicture) -> bytes | memoryview | None:
        """The file if DALI is to decode it, checked for damage where that is asked for."""
        source = picture.source
        if not isinstance(source, JpegSource):
            return None
        file = source.plain()
        on_gpu = self._is_on_gpu("DecodeImage")
        if file is None or (on_gpu and source.pixels > self.backend.max_device_pixels):
            return None
        if source.strict:
            if self.backend.asked_place_of("DecodeImage") in ("auto", "cpu"):  # to check costs what decoding does
                return None
            source.check()
        return file

    def _form(self, picture: DaliPicture, entry: Entry, *, entry_on_gpu: bool) -> Form:
        chain = picture.chain
        height, width = picture.window.height, picture.window.width
        if not entry_on_gpu and height * width > self.backend.max_device_pixels:
            chain = _on_cpu(chain)
        return Form(entry, str(picture.source.dtype), chain, entry_on_gpu)

    def _is_on_gpu(self, op: str) -> bool:
        return self.backend.place_of(op) != "cpu"

    # -- runs ---------------------------------------------------------------------------------------------------------

    def _made(self, form: Form, group: Sequence[_Row]) -> Iterator[tuple[int, SampleError | None]]:
        """Run a group; if that fails, each half of it, down to the picture whose fault it is."""
        try:
            self._run(form, group)
        except RuntimeError as error:
            _raise_if_lost(error)
            if len(group) > 1:
                half = len(group) // 2
                yield from self._made(form, group[:half])
                yield from self._made(form, group[half:])
            elif form.entry == "file":
                yield self._decoded_here(*group[0])
            elif form.uses_gpu and _is_out_of_memory(error):
                self._run(Form(form.entry, form.dtype, _on_cpu(form.chain), entry_on_gpu=False), group)
                yield group[0][0], None
            else:
                raise
        else:
            yield from ((index, None) for index, _, _ in group)

    def _decoded_here(self, index: int, write: DaliWrite, item: Item) -> tuple[int, SampleError | None]:
        """What DALI refuses is decoded by the cpu back-end, whose verdict counts."""
        picture = write.picture
        try:
            content = picture.source.reader(picture.window)()
        except SampleError as error:
            return index, error
        if not picture.chain:
            _place_all([write.out], [content])
            return index, None
        form = self._form(picture, "pixels", entry_on_gpu=False)
        (verdict,) = self._made(form, [(index, write, Item(content.copy(), item.window, item.values))])
        return verdict

    def _run(self, form: Form, group: Sequence[_Row]) -> None:
        items = [item for _, _, item in group]
        outs = [write.out for _, write, _ in group]
        if not form.uses_gpu:
            _place_all(outs, self._ran(self._graphs_of_thread(), form, 1, items))
            return
        with self._lock:
            if self._pid != os.getpid():
                raise DeviceLostError("a process that was forked off cannot use its parent's GPU; start it anew")
            try:
                made = self._on_gpu(form, items)
            except RuntimeError as error:
                if not _is_out_of_memory(error):
                    raise
                _LOG.warning("the GPU's memory is full; trimming DALI's pools and trying again: %s", error)
                self._trim()
                made = self._on_gpu(form, items)
            _place_all(outs, made)
            _holders.add(self)
            if sum(graph.device_bytes for graph in self._shared.values()) > self.backend.device_bytes // len(_holders):
                del made
                self._trim()

    def _on_gpu(self, form: Form, items: Sequence[Item]) -> Any:
        return self._ran(self._shared, form, len(os.sched_getaffinity(0)), items)

    def _ran(self, graphs: OrderedDict[Form, Graph], form: Form, num_threads: int, items: Sequence[Item]) -> Any:
        graph = self._graph(graphs, form, num_threads)
        try:
            return graph.run(items)
        except RuntimeError:
            graphs.pop(form)  # a pipeline that has failed once never runs again
            raise

    def _graph(self, graphs: OrderedDict[Form, Graph], form: Form, num_threads: int) -> Graph:
        graph = graphs.pop(form, None)
        if graph is None:
            graph = self._built(form, num_threads)
        graphs[form] = graph
        while len(graphs) > _MAX_GRAPHS:
            graphs.popitem(last=False)
        return graph

    def _built(self, form: Form, num_threads: int) -> Graph:
        if not form.uses_gpu:
            return Graph(form, self.backend.rows_together, num_threads, None)
        try:
            return Graph(form, self.backend.rows_together, num_threads, self.backend.device_index)
        except RuntimeError as error:
            _raise_if_lost(error)
            if self._shared or _is_out_of_memory(error):  # it was there a moment ago
                raise
            raise SpecError(
                f"device={self.backend.device!r}: DALI cannot use this GPU: is there one (see nvidia-smi), and is "
                f"DALI the build for its driver's CUDA (nvidia-dali-cuda120 or -cuda130)? It says: {error}"
            ) from error

    def _graphs_of_thread(self) -> OrderedDict[Form, Graph]:
        mine: tuple[int, OrderedDict[Form, Graph]] | None = getattr(self._mine, "graphs", None)
        if mine is None or mine[0] != os.getpid():
            mine = self._mine.graphs = (os.getpid(), OrderedDict())
        return mine[1]

    def _trim(self) -> None:
        """Give back what pipelines and pools hold beyond what they use."""
        self._shared.clear()
        _holders.discard(self)
        library("backend").ReleaseUnusedMemory()


_holders: weakref.WeakSet[Runner] = weakref.WeakSet()
"""Programs of this process that hold memory of the GPU; they share its limit evenly, as a worker's pipelines do."""


def _parts(group: Sequence[_Row], max_rows: int) -> Iterator[Sequence[_Row]]:
    """Cut a group into runs that are bounded in rows and in bytes of pixels."""
    part: list[_Row] = []
    num_bytes = 0
    for row in group:
        window, picture = row[1].picture.window, row[1].picture
        own = window.height * window.width * picture.source.channels * picture.source.dtype.itemsize
        if part and (len(part) == max_rows or num_bytes + own > _GROUP_BYTES):
            yield part
            part, num_bytes = [], 0
        part.append(row)
        num_bytes += own
    if part:
        yield part


def _on_cpu(chain: tuple[Placed, ...]) -> tuple[Placed, ...]:
    return tuple(Placed(step, on_gpu=False) for step, _ in chain)


def _place_all(outs: Sequence[Any], made: Any) -> None:
    """Copy what DALI made into the places, on whichever side they are."""
    device = next((str(out.device) for out in outs if not isinstance(out, np.ndarray)), "cpu")
    on_gpu = type(made).__name__ == "TensorListGPU"
    if on_gpu and device == "cpu":
        made, on_gpu = made.as_cpu(), False
    with beside(device):
        for out, one in zip(outs, made, strict=True):
            _place(out, one if on_gpu else np.asarray(one))


def _place(out: Any, made: Any) -> None:
    """Copy a picture into its place: an array takes one from the host, a tensor one from anywhere."""
    if isinstance(out, np.ndarray):
        np.copyto(out, made.reshape(out.shape))
        return
    torch: Any = importlib.import_module("torch")
    out.copy_(torch.from_numpy(made) if isinstance(made, np.ndarray) else torch.from_dlpack(made))


def _is_out_of_memory(error: RuntimeError) -> bool:
    return any(words in str(error) for words in _OUT_OF_MEMORY)


def _raise_if_lost(error: RuntimeError) -> None:
    """Raise DeviceLostError if no later run can succeed."""
    if isinstance(error, DeviceLostError):
        raise error
    if any(words in str(error) for words in _LOST):
        raise DeviceLostError(f"the GPU's context is broken, this process cannot use it any more: {error}") from error
