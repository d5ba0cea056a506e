"""The loader that a training loop iterates."""

from __future__ import annotations

import importlib.util
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from stoker import ranks, services
from stoker.backends.options import Backend, as_backend
from stoker.batch import convert
from stoker.device.ahead import Ahead
from stoker.device.place import find_place
from stoker.device.program import DeviceProgram, steps_of
from stoker.engine.feed import Deal
from stoker.engine.local import LocalSupply
from stoker.engine.quarantine import Quarantine
from stoker.errors import ClosedError, MissingDependencyError, SpecError, TooManyBadSamplesError
from stoker.ops.op import Op
from stoker.pipeline import Pipeline
from stoker.randomness import MAX_EPOCHS
from stoker.state import from_state, to_state
from stoker.storage.cache import CacheOptions
from stoker.supply import SERVICE_GROUP, Delivery, OpenSupply, Supply, SupplyOptions

if TYPE_CHECKING:
    import pyarrow as pa

Output = Literal["torch", "numpy", "jax", "arrow"]

_LOG = logging.getLogger("stoker")

DEFAULT_PREFETCH_BYTES = 256 << 20
DEFAULT_TIMEOUT_S = 300.0


class _OneName(type):
    """Lets ``stoker.DataLoader`` stand for :class:`stoker.compat.DataLoader` where it is given no pipeline."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        what = kwargs["dataset"] if "dataset" in kwargs else args[0] if args else None
        if what is None or isinstance(what, (Pipeline, str, bytes, Path)):
            return super().__call__(*args, **kwargs)
        if not importlib.util.find_spec("torch"):
            raise MissingDependencyError(
                f"DataLoader of a {type(what).__name__}, not of a stoker.Pipeline: torch's datasets need "
                "pip install 'stoker[torch]'"
            )
        from stoker import compat

        if cls is not DataLoader:
            raise SpecError(
                f"{cls.__name__} is a subclass of stoker.DataLoader and is given a {type(what).__name__}, not a "
                "stoker.Pipeline: for torch's datasets derive it from stoker.compat.DataLoader"
            )
        return compat.DataLoader(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        if super().__instancecheck__(instance):
            return True
        found = sys.modules.get("stoker.compat.loader")
        return cls is DataLoader and found is not None and isinstance(instance, found.DataLoader)


class DataLoader(metaclass=_OneName):
    """Iterates the batches that a pipeline gives to one rank; of a torch dataset it makes a stoker.compat.DataLoader.

    A batch is a dict of columns: tensors or arrays with the batch as first dimension, ``"__key__"`` a list of str,
    and ``"__mask__"`` (bool, False for filler and replaced samples) where a policy can make one false. What comes in
    which batch depends on the data, ``seed``, epoch and position alone.

    Iterating gives one epoch. Iterating again goes on to the next one, never the same again; :meth:`set_epoch` chooses
    another. After :meth:`load_state_dict` the first iteration gives the rest of the saved epoch.

    Args:
        pipeline: what to load.
        rank, world_size: this process among those that share the epoch; both or neither. Unless given, taken from
            torch.distributed if it is initialised, else from the launcher's environment, else 0 of 1.
        num_workers: processes of this machine that make the batches, the same ones; 0: threads of this process do.
            They pay where functions of the user's own (``ops.Map``) keep other threads from working.
        num_threads: decoding threads, shared out among the workers; one per core unless told otherwise.
        output: ``"torch"`` (the default where torch is installed), ``"numpy"``, ``"jax"``, or ``"arrow"`` for the
            pyarrow.RecordBatch itself. Zero-copy where the type allows; the arrays may be written to and kept.
        pin_memory: torch only: batches lie in pinned memory.
        device: torch only: batches come on this device, ``"cuda"`` or ``"cuda:1"``, copied on a stream of their own,
            one ahead; the current stream of the thread that takes a batch waits for it. ``"cpu"`` goes the same way.
        device_ops: ``ops.Normalize``, ``ops.ToLayout``, ``ops.Cast`` that torch carries out on ``device``, in order, so
            that bytes travel and not floats. No part of the pipeline or its state.
        prefetch_bytes: batches made ahead, at most.
        read_bytes: chunks held and read ahead, at most, beyond what the next batch needs.
        cache: where chunks from a bucket are kept for the next epoch and for other jobs: a folder on a local disk, or
            :class:`stoker.CacheOptions` with budgets and a part in memory. Nothing is kept unless it is given.
        backend: what decodes and augments: ``"cpu"``, ``"dali"`` (on ``device`` if that is a GPU), ``"auto"`` (``cpu``:
            a GPU that trains has enough to do), or a :class:`stoker.Backend`. Samples, windows and masks do not depend
            on it.
        timeout_s: how long one batch may take before StallError names what it waits for.
        quarantine: a file that bad samples are appended to, as JSON lines.
        service: the address of a service, ``"stoker://host:port"``, whose workers make the batches; the same ones.
        in_order: False lets a service hand out batches as they come: the same ones in another sequence, each once, and
            as resumable. In this process they always come in order.
        job: a name for people, the same on all ranks; see ``stoker status``.

    Raises SpecError, StorageError, ShardError when it opens the source, StallError if the service has no worker in
    time; :meth:`__iter__` raises what the samples and the policies give.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        num_workers: int = 0,
        num_threads: int | None = None,
        output: Output | None = None,
        pin_memory: bool = False,
        device: Any = None,
        device_ops: Sequence[Op] = (),
        prefetch_bytes: int = DEFAULT_PREFETCH_BYTES,
        read_bytes: int | None = None,
        cache: str | Path | CacheOptions | None = None,
        backend: str | Backend = "auto",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        quarantine: str | Path | None = None,
        service: str | None = None,
        in_order: bool = True,
        job: str = "default",
    ) -> None:
        _check_pipeline(pipeline)
        _check_num_workers(num_workers)
        self._closed = False
        self.pipeline = pipeline
        self.rank = ranks.find(rank, world_size)
        pipeline.tail_for(self.rank.world_size)
        self._output = _checked_output(output, pin_memory=pin_memory, device=device)
        self._pin_memory = pin_memory
        place = None if device is None else find_place(device)
        program = _device_program(pipeline, place, device_ops)
        on_gpu = place is not None and place != "cpu"
        options = SupplyOptions(prefetch_bytes, timeout_s, in_order, pin_memory or on_gpu, job)
        if service is None:
            local = _Local(num_workers, num_threads, read_bytes, _cache_options(cache), *_backend(backend, place))
            self._supply = _of_this_machine(pipeline, self.rank, options, local)
        else:
            _refuse_local(
                num_workers=num_workers or None,
                num_threads=num_threads,
                read_bytes=read_bytes,
                cache=cache,
                backend=None if backend == "auto" else backend,
            )
            open_supply: OpenSupply = services.opener(service, SERVICE_GROUP)
            self._supply = open_supply(service, pipeline, self.rank, options)
        self._order = self._supply.order
        self._deal = Deal(pipeline, self._order.num_samples, self.rank)
        self._ahead: Ahead | None = None
        if place is not None:
            self._ahead = Ahead(self._supply, self._deal.following, place, program, timeout_s)
        self._conversions: Counter[str] = Counter()
        self._num_bad = self._num_filtered = 0
        self._quarantine = Quarantine(Path(quarantine) if quarantine else None)
        self._position = self._deal.start(0)
        self._begun = self._chosen = False
        self._iteration = 0
        self._epoch_bad = 0
        self._warn_of_no_batch()

    # -- iterating ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """One epoch from the current position; an older iterator of this loader ends with an error."""
        self._check_open()
        nothing_left = not self._deal.num_left(self._position)
        if self._begun or (nothing_left and not self._chosen):
            self._position = self._deal.start(self._position.epoch + 1)
        self._begun, self._chosen = True, False
        self._iteration += 1
        self._epoch_bad = 0
        return self._epoch(self._iteration)

    def __len__(self) -> int:
        """Batches that this rank gets in a whole epoch; the same for all ranks."""
        return self._deal.num_left(self._deal.start(0))

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration. A position loaded or skipped to inside this epoch is kept."""
        self._check_open()
        if not 0 <= int(epoch) < MAX_EPOCHS:
            raise SpecError(f"set_epoch({epoch!r}): expected a whole number from 0 to {MAX_EPOCHS - 1}")
        if self._begun or epoch != self._position.epoch:
            self._position = self._deal.start(epoch)
        self._begun, self._chosen = False, True

    def skip(self, num_batches: int) -> None:
        """Leave out the next ``num_batches`` batches of each rank, without reading them; to the epoch's end at most."""
        self._check_open()
        if num_batches < 0:
            raise SpecError(f"skip({num_batches}): expected a number of batches, 0 or more")
        self._position = self._deal.skipped(self._position, num_batches)
        self._interrupt()

    def _epoch(self, iteration: int) -> Iterator[Any]:
        for _ in range(self._deal.num_left(self._position)):
            self._check_current(iteration)
            batch, batch_index = self._taken()
            self._position = self._deal.taken(self._position, batch_index)
            handed_s = time.monotonic()
            yield batch
            self._supply.add_between(time.monotonic() - handed_s)

    def _taken(self) -> tuple[Any, int]:
        """The next batch as the trainer wants it, and its index."""
        if self._ahead is not None:
            carried = self._ahead.next(self._position)
            self._account(carried.delivery)
            return carried.on_device.hand_over(), carried.delivery.batch_index
        delivery = self._supply.next(self._position)
        self._account(delivery)
        return self._converted(delivery.batch), delivery.batch_index

    # -- state --------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Epoch and position of what was handed out, not of what is prefetched. JSON values, below 4 KiB.

        It is the same on every rank after the same step, and fits a loader with another world size, batch size,
        number of lanes, or place of the data. With ``in_order=False`` on several ranks, each rank has its own.
        """
        return to_state(self._position, self._order)

    def load_state_dict(self, state: dict[str, Any], *, allow_changes: bool = False) -> None:
        """Go on where a state was saved.

        Raises StateError if the data or what decides their order differ, and says how; ``allow_changes`` goes on in the
        new order, from the same number of samples.
        """
        self._check_open()
        position = from_state(state, self._order, allow_changes=allow_changes)
        self._position = position.dealt_again(
            batch_size=self.pipeline.batch_size,
            num_lanes=self.pipeline.lanes,
            rank=self.rank.index,
            world_size=self.rank.world_size,
        )
        self._interrupt()

    # -- the rest -----------------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Running counters since the loader was made, and ``limited_by``: storage, decode, or trainer.

        With a service it may also be ``network``, with ``device=`` also ``device``: batches on their way to it.
        ``conversions`` counts pictures whose colours were not those asked for, such as ``{"CMYK to RGB": 22}``.
        """
        return {
            **(self._supply if self._ahead is None else self._ahead).stats(),
            "bad_samples": self._num_bad,
            "filtered_samples": self._num_filtered,
            "conversions": dict(self._conversions),
        }

    def close(self) -> None:
        """Stop all threads; within 2 s. May be called again."""
        self._closed = True
        (self._supply if self._ahead is None else self._ahead).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        name = f"DataLoader(rank {self.rank.index} of {self.rank.world_size}, {len(self)} batches an epoch"
        return f"{name}, epoch {self._position.epoch}{', closed' if self._closed else ''})"

    def _warn_of_no_batch(self) -> None:
        if len(self):
            return
        _LOG.warning(
            "%d samples, batches of %d on %d ranks, tail=%r: an epoch has no batch; take a smaller batch_size or "
            'tail="pad"',
            self._order.num_samples,
            self.pipeline.batch_size,
            self.rank.world_size,
            self.pipeline.tail_for(self.rank.world_size),
        )

    def _interrupt(self) -> None:
        """The next iteration begins at the current position; one that is under way ends with an error."""
        self._iteration += 1
        self._begun = self._chosen = False

    def _account(self, delivery: Delivery) -> None:
        bad = delivery.bad
        self._num_bad += len(bad)
        self._num_filtered += delivery.num_filtered
        self._conversions.update(delivery.conversions)
        self._epoch_bad += len(bad)
        self._quarantine.add(bad, epoch=delivery.epoch)
        allowed = self._allowed_bad()
        if allowed is not None and self._epoch_bad > allowed:
            latest = "; ".join(str(error) for error in bad[-3:])
            raise TooManyBadSamplesError(
                f"{self._epoch_bad} bad samples in epoch {delivery.epoch}, max_bad={self.pipeline.max_bad} allows "
                f"{allowed}; the latest: {latest}"
            )

    def _allowed_bad(self) -> int | None:
        max_bad = self.pipeline.max_bad
        if max_bad is None:
            return None
        if isinstance(max_bad, float) and max_bad < 1:
            return int(max_bad * len(self) * self.pipeline.batch_size)
        return int(max_bad)

    def _converted(self, batch: pa.RecordBatch) -> Any:
        match self._output:
            case "arrow":
                return batch
            case "numpy":
                return convert.to_numpy(batch)
            case "jax":
                return convert.to_jax(batch)
            case "torch":
                return convert.to_torch(batch, pin_memory=self._pin_memory)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this DataLoader was closed; make a new one")

    def _check_current(self, iteration: int) -> None:
        self._check_open()
        if iteration != self._iteration:
            raise ClosedError("this iterator is out of date: the loader was iterated again, skipped, or given a state")


@dataclass(frozen=True, slots=True)
class _Local:
    """What a supply of this machine may use."""

    num_workers: int
    num_threads: int | None
    read_bytes: int | None
    cache: CacheOptions | None
    backend: Backend
    device: str | None


def _of_this_machine(pipeline: Pipeline, rank: ranks.Rank, options: SupplyOptions, local: _Local) -> Supply:
    """The supply of this process's threads, or of worker processes."""
    limits: dict[str, Any] = {
        "num_threads": local.num_threads,
        "read_bytes": local.read_bytes,
        "cache": local.cache,
        "backend": local.backend,
    }
    if not local.num_workers:
        return LocalSupply(pipeline, rank, options, device=local.device, **limits)
    from stoker.engine.process_supply import ProcessSupply  # what it needs is of no use to those without workers

    return ProcessSupply(pipeline, rank, options, num_workers=local.num_workers, **limits)


def _backend(backend: str | Backend, name: str | None) -> tuple[Backend, str | None]:
    """The back-end that is meant, and the device on which it leaves what it makes there.

    DALI works where the batches go to, the device of this name, unless it is told where. A GPU that trains is not
    made to decode as well unless that is asked for.
    """
    if isinstance(backend, Backend):
        chosen = backend
    else:
        is_there = backend == "dali" and name is not None and name.startswith("cuda")
        chosen = replace(as_backend(backend), device=name if is_there and name is not None else "cpu")
    return chosen, name if name == f"{chosen.device.partition(':')[0]}{_index(chosen)}" else None


def _index(backend: Backend) -> str:
    return f":{backend.device_index}" if backend.is_gpu else ""


def _device_program(pipeline: Pipeline, place: str | None, device_ops: Sequence[Op]) -> DeviceProgram:
    if device_ops and place is None:
        raise SpecError('device_ops are carried out on a device; give device="cuda", or "cpu", as well')
    if not isinstance(device_ops, Sequence):
        raise SpecError(f"device_ops is {device_ops!r}; expected a tuple or list of ops")
    return DeviceProgram(steps_of(device_ops, pipeline.ops))


def _cache_options(cache: str | Path | CacheOptions | None) -> CacheOptions | None:
    if isinstance(cache, CacheOptions) and not cache.folder and not cache.ram_bytes:
        raise SpecError(f"cache={cache!r} would keep nothing; give folder, ram_bytes, or both")
    if cache is None or isinstance(cache, CacheOptions):
        return cache
    if isinstance(cache, str | Path):
        return CacheOptions(folder=str(cache))
    raise SpecError(f"cache is {cache!r}; expected the path of a local folder, or stoker.CacheOptions")


def _refuse_local(**given: object) -> None:
    """With a service, the workers have settings of their own."""
    for name, value in given.items():
        if value is not None:
            hint = " (stoker up --backend, stoker worker --backend)" if name == "backend" else ""
            raise SpecError(
                f"{name}={value} is for this process; with service= the workers have their own, set there{hint}"
            )


def _check_pipeline(pipeline: object) -> None:
    if not isinstance(pipeline, Pipeline):
        raise SpecError(
            f"DataLoader: expected a stoker.Pipeline, found {type(pipeline).__name__}; for a URL take "
            'stoker.Pipeline.preset("imagenet_train", url, batch_size=256)'
        )


def _check_num_workers(num_workers: object) -> None:
    if not isinstance(num_workers, int) or isinstance(num_workers, bool) or num_workers < 0:
        raise SpecError(
            f"num_workers is {num_workers!r}; expected a number of processes, or 0 for threads of this process"
        )


def _checked_output(output: Output | None, *, pin_memory: bool, device: Any) -> Output:
    if output is None:
        output = "torch" if importlib.util.find_spec("torch") else "numpy"
    if output not in get_args(Output):
        raise SpecError(f"output is {output!r}; expected one of {', '.join(get_args(Output))}")
    if output == "jax" and not importlib.util.find_spec("jax"):
        raise MissingDependencyError('output="jax" needs JAX: pip install jax')
    if device is not None and not importlib.util.find_spec("torch"):
        raise MissingDependencyError(f"device={device!r} needs PyTorch: pip install 'stoker[torch]'")
    if output != "torch" and (pin_memory or device is not None):
        raise SpecError(f'pin_memory and device go with output="torch", not with {output!r}')
    return output
