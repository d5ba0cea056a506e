"""The loader that a training loop iterates."""

from __future__ import annotations

import importlib.util
import logging
import os
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

from stoker import ranks
from stoker.backends.registry import compile_ops
from stoker.batch import convert
from stoker.batch.pool import BufferPool
from stoker.engine import leaving
from stoker.engine.engine import Engine, Limits
from stoker.engine.feed import Feed
from stoker.engine.quarantine import Quarantine
from stoker.engine.retries import RetryTally
from stoker.engine.stats import Counters, verdict
from stoker.engine.ticket import Ticket
from stoker.engine.tuning import default_concurrency, default_read_bytes, num_cores
from stoker.errors import ClosedError, MissingDependencyError, SpecError, TooManyBadSamplesError
from stoker.formats.dataset import Dataset
from stoker.formats.open import open_dataset
from stoker.formats.source import Source
from stoker.pipeline import Pipeline
from stoker.plan.resume import Position
from stoker.randomness import MAX_EPOCHS
from stoker.state import from_state, identity, to_state
from stoker.storage.daemon_pool import DaemonPool

Output = Literal["torch", "numpy", "jax", "arrow"]

_LOG = logging.getLogger("stoker")

DEFAULT_PREFETCH_BYTES = 256 << 20
DEFAULT_TIMEOUT_S = 300.0


class DataLoader:
    """Iterates the batches that a pipeline gives to one rank.

    A batch is a dict of columns: tensors or arrays with the batch as first dimension, ``"__key__"`` a list of str,
    and ``"__mask__"`` (bool, False for filler and replaced samples) where a policy can make one false. What comes in
    which batch depends on the data, ``seed``, epoch and position alone.

    Iterating gives one epoch. Iterating again goes on to the next one, never the same again; :meth:`set_epoch` chooses
    another. After :meth:`load_state_dict` the first iteration gives the rest of the saved epoch.

    Args:
        pipeline: what to load.
        rank, world_size: this process among those that share the epoch; both or neither. Unless given, taken from
            torch.distributed if it is initialised, else from the launcher's environment, else 0 of 1.
        num_workers: 0: threads of this process do the work.
        num_threads: decoding threads; one per core unless told otherwise.
        output: ``"torch"`` (the default where torch is installed), ``"numpy"``, ``"jax"``, or ``"arrow"`` for the
            pyarrow.RecordBatch itself. Zero-copy where the type allows; the arrays may be written to and kept.
        pin_memory: torch only: batches lie in pinned memory.
        device: torch only: batches are copied to this device.
        prefetch_bytes: batches made ahead, at most.
        read_bytes: chunks held and read ahead, at most, beyond what the next batch needs.
        timeout_s: how long one batch may take before StallError names what it waits for.
        quarantine: a file that bad samples are appended to, as JSON lines.

    Raises SpecError, StorageError, ShardError when it opens the source; :meth:`__iter__` raises what the samples and
    the policies give.
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
        prefetch_bytes: int = DEFAULT_PREFETCH_BYTES,
        read_bytes: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        quarantine: str | Path | None = None,
    ) -> None:
        _check_pipeline(pipeline)
        if num_workers != 0:
            raise SpecError(f"num_workers is {num_workers}; only 0 (threads of this process) is there yet")
        self._closed = False
        self.pipeline = pipeline
        self.rank = ranks.find(rank, world_size)
        pipeline.tail_for(self.rank.world_size)
        self._output = _checked_output(output, pin_memory=pin_memory, device=device)
        self._pin_memory, self._device = pin_memory, device
        self._program = compile_ops(pipeline.ops)
        self._tally = RetryTally()
        source = pipeline.source
        self._dataset = _opened(replace(source, chunk_bytes=1) if pipeline.shuffle == "full" else source, self._tally)
        self._feed = Feed(pipeline, self._dataset.chunks, self.rank.index, self.rank.world_size)
        self._order = identity(pipeline, self._dataset)
        self._limits = Limits(
            num_threads=num_cores() if num_threads is None else num_threads,
            read_bytes=read_bytes or default_read_bytes(self._feed),
            prefetch_bytes=prefetch_bytes,
            timeout_s=timeout_s,
            concurrency=default_concurrency(source),
        )
        self._pool = BufferPool()
        self._counters = Counters()
        self._conversions: Counter[str] = Counter()
        self._quarantine = Quarantine(Path(quarantine) if quarantine else None)
        self._position = self._feed.start(0)
        self._begun = False
        self._chosen = False
        self._iteration = 0
        self._epoch_bad = 0
        self._engine: Engine | None = None
        self._engine_at: Position | None = None
        self._engine_pid = 0
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._warn_of_no_batch()

    # -- iterating ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """One epoch from the current position; an older iterator of this loader ends with an error."""
        self._check_open()
        nothing_left = not self._feed.steps(self._position).num_steps
        if self._begun or (nothing_left and not self._chosen):
            self._position = self._feed.start(self._position.epoch + 1)
        self._begun, self._chosen = True, False
        self._iteration += 1
        self._epoch_bad = 0
        return self._epoch(self._iteration)

    def __len__(self) -> int:
        """Batches that this rank gets in a whole epoch; the same for all ranks."""
        return self._feed.steps(self._feed.start(0)).num_steps

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration. A position loaded or skipped to inside this epoch is kept."""
        self._check_open()
        if not 0 <= int(epoch) < MAX_EPOCHS:
            raise SpecError(f"set_epoch({epoch!r}): expected a whole number from 0 to {MAX_EPOCHS - 1}")
        if self._begun or epoch != self._position.epoch:
            self._position = self._feed.start(epoch)
        self._begun, self._chosen = False, True

    def skip(self, num_batches: int) -> None:
        """Leave out the next ``num_batches`` batches of each rank, without reading them; to the epoch's end at most."""
        self._check_open()
        if num_batches < 0:
            raise SpecError(f"skip({num_batches}): expected a number of batches, 0 or more")
        steps = self._feed.steps(self._position)
        self._move(steps.consumed(min(num_batches, steps.num_steps)))
        self._interrupt()

    def _epoch(self, iteration: int) -> Iterator[Any]:
        steps = self._feed.steps(self._position)
        for step in range(steps.num_steps):
            self._check_current(iteration)
            engine = self._engine_here()
            self._engine_at = None  # after an error or Ctrl-C in here, nobody knows where it is
            ticket = engine.next()
            self._account(ticket)
            batch = self._converted(ticket)
            del ticket
            self._move(steps.consumed(step + 1))
            self._engine_at = self._after(self._position)
            handed_s = time.monotonic()
            yield batch
            self._counters.between_s += time.monotonic() - handed_s

    # -- state --------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Epoch and position of what was handed out, not of what is prefetched. JSON values, below 4 KiB.

        It is the same on every rank after the same step, and fits a loader with another world size, batch size,
        number of lanes, or place of the data.
        """
        return to_state(self._position, self._order)

    def load_state_dict(self, state: dict[str, Any], *, allow_changes: bool = False) -> None:
        """Go on where a state was saved.

        Raises StateError if the data or what decides their order differ, and says how; ``allow_changes`` goes on in the
        new order, from the same number of samples.
        """
        self._check_open()
        position = from_state(state, self._order, allow_changes=allow_changes)
        self._position = position.dealt_again(batch_size=self.pipeline.batch_size, num_lanes=self.pipeline.lanes)
        self._interrupt()

    # -- the rest -----------------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Running counters since the loader was made, and ``limited_by``: storage, decode, or trainer.

        ``conversions`` counts pictures whose colours were not those asked for, such as ``{"CMYK to RGB": 22}``.
        """
        return {
            **self._counters.as_dict(),
            "conversions": dict(self._conversions),
            "retries": self._tally.retries,
            "throttled": self._tally.throttled,
            "limited_by": verdict(self._counters),
        }

    def close(self) -> None:
        """Stop all threads; within 2 s. May be called again."""
        self._closed = True
        self._tally.close()
        self._stop_engine()

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
            self._dataset.chunks.num_samples,
            self.pipeline.batch_size,
            self.rank.world_size,
            self.pipeline.tail_for(self.rank.world_size),
        )

    def _after(self, position: Position) -> Position:
        """What the engine makes once ``position`` is reached: the next epoch, if nothing is left of this one."""
        return position if self._feed.steps(position).num_steps else self._feed.start(position.epoch + 1)

    def _interrupt(self) -> None:
        """The next iteration begins at the current position; one that is under way ends with an error."""
        self._iteration += 1
        self._begun = self._chosen = False

    def _move(self, num_consumed: int) -> None:
        self._position = Position(self._position.epoch, self._position.lanes, num_consumed)

    def _engine_here(self) -> Engine:
        """The engine whose next batch is the one at the current position."""
        if self._engine is None or self._engine_at != self._position or self._engine_pid != os.getpid():
            self._stop_engine()
            if self._engine_pid not in (0, os.getpid()):
                self._pool = BufferPool()  # a thread that the fork left behind may have held the lock of the old one
            engine = Engine(
                self.pipeline,
                self._dataset,
                self._program,
                self._pool,
                self._limits,
                self._counters,
                self._tally,
                first_epoch=self._position.epoch,
            )
            engine.start(self._feed.work(self._position))
            self._engine, self._engine_pid = engine, os.getpid()
            self._finalizer = leaving.close_later(self, engine, self._tally)
        return self._engine

    def _stop_engine(self) -> None:
        if self._engine is not None and self._engine_pid == os.getpid():  # a fork has none of its threads
            self._engine.close()
        if self._finalizer is not None:
            self._finalizer.detach()
        self._engine, self._engine_at, self._finalizer = None, None, None

    def _account(self, ticket: Ticket) -> None:
        bad = ticket.bad
        self._counters.bad_samples += len(bad)
        self._counters.filtered_samples += len(ticket.filtered)
        self._conversions.update(ticket.conversions.values())
        self._epoch_bad += len(bad)
        self._quarantine.add(bad, epoch=ticket.work.epoch)
        allowed = self._allowed_bad()
        if allowed is not None and self._epoch_bad > allowed:
            latest = "; ".join(str(error) for error in bad[-3:])
            raise TooManyBadSamplesError(
                f"{self._epoch_bad} bad samples in epoch {ticket.work.epoch}, max_bad={self.pipeline.max_bad} allows "
                f"{allowed}; the latest: {latest}"
            )

    def _allowed_bad(self) -> int | None:
        max_bad = self.pipeline.max_bad
        if max_bad is None:
            return None
        if isinstance(max_bad, float) and max_bad < 1:
            return int(max_bad * len(self) * self.pipeline.batch_size)
        return int(max_bad)

    def _converted(self, ticket: Ticket) -> Any:
        assert ticket.batch is not None, "the engine hands out a batch or raises"
        match self._output:
            case "arrow":
                return ticket.batch
            case "numpy":
                return convert.to_numpy(ticket.batch)
            case "jax":
                return convert.to_jax(ticket.batch)
            case "torch":
                return convert.to_torch(ticket.batch, pin_memory=self._pin_memory, device=self._device)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this DataLoader was closed; make a new one")

    def _check_current(self, iteration: int) -> None:
        self._check_open()
        if iteration != self._iteration:
            raise ClosedError("this iterator is out of date: the loader was iterated again, skipped, or given a state")


def _opened(source: Source, tally: RetryTally) -> Dataset:
    """Open a source in a thread, so that a store that stalls does not keep Ctrl-C from the main thread."""
    try:
        with DaemonPool(1, "stoker-open") as pool:
            return pool.submit(copy_context().run, lambda: open_dataset(source, opener=tally.open)).result()
    except BaseException:
        tally.close()
        raise


def _check_pipeline(pipeline: object) -> None:
    if not isinstance(pipeline, Pipeline):
        raise SpecError(
            f"DataLoader: expected a stoker.Pipeline, found {type(pipeline).__name__}; for a URL take "
            'stoker.Pipeline.preset("imagenet_train", url, batch_size=256)'
        )


def _checked_output(output: Output | None, *, pin_memory: bool, device: Any) -> Output:
    if output is None:
        output = "torch" if importlib.util.find_spec("torch") else "numpy"
    if output not in get_args(Output):
        raise SpecError(f"output is {output!r}; expected one of {', '.join(get_args(Output))}")
    if output == "jax" and not importlib.util.find_spec("jax"):
        raise MissingDependencyError('output="jax" needs JAX: pip install jax')
    if output != "torch" and (pin_memory or device is not None):
        raise SpecError(f'pin_memory and device go with output="torch", not with {output!r}')
    return output
