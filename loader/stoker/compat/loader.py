"""torch's DataLoader with Stoker's workers."""

from __future__ import annotations

import operator
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, Final, Literal, Self, TypeVar, get_args

import torch.utils.data
from torch.utils.data import Dataset, IterableDataset, Sampler
from torch.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

from stoker import services
from stoker.compat import auto
from stoker.compat.crew import CREW_GROUP, Crew, CrewOptions, Job, OpenCrew, Seeding
from stoker.compat.iteration import Times
from stoker.compat.iterator import WorkerIterator
from stoker.compat.local import LocalIterator
from stoker.compat.positions import TrackedSampler, prepare
from stoker.compat.process_crew import ProcessCrew
from stoker.compat.progress import Progress
from stoker.compat.state import Saved, from_state, to_state
from stoker.compat.thread_crew import ThreadCrew
from stoker.errors import ClosedError, SpecError
from stoker.pipeline import Pipeline
from stoker.processes.launch import StartMethod, warm

T_co = TypeVar("T_co", covariant=True)
Method = Literal["multiprocessing", "thread", "auto"]
Replicas = Literal["once", "torch"]
_DEFAULT_AT_SERVICE: Final = 2


class DataLoader(torch.utils.data.DataLoader[T_co]):
    """A subclass of :class:`torch.utils.data.DataLoader` that gives the same batches.

    torch's arguments mean what they mean there; torch checks them. What differs is how batches come about: worker
    processes are started once by a server that has torch loaded, and kept for the life of the loader; they get the data
    set once, and again only when it has changed; batches come back in shared memory of which each worker has one piece.

    Args:
        dataset, batch_size, shuffle, sampler, batch_sampler, collate_fn, pin_memory, drop_last, worker_init_fn,
            generator, prefetch_factor, pin_memory_device, in_order: see torch.
        num_workers: as in torch; ``"auto"``: one for each core, and ``worker_method="auto"``. With ``service``:
            processes there, 2 unless told otherwise.
        timeout: seconds for one batch. With 0 a worker that does nothing for 300 s, or that works for an hour, ends the
            wait with an error, and what is waited for is in the log long before.
        multiprocessing_context: ``"forkserver"`` (the default, a server of our own), ``"spawn"``, or ``"fork"``, which
            sends nothing and starts the workers anew for each iteration, as torch does.
        persistent_workers: with True, workers keep their copy of the dataset as it is. Otherwise each iteration begins
            with a new copy of the dataset as it is then, in the same processes.
        worker_method: ``"thread"``: threads instead of processes, for map-style datasets that release the interpreter's
            lock; ``"auto"`` measures that on a few samples.
        seeding: ``"worker"``: the generators of Python, NumPy and torch are seeded in each worker as torch does, so
            random numbers depend on ``num_workers``. ``"sample"``: they are seeded anew for each sample, so that random
            numbers are the same for any number of workers, 0 included, on a service, and after a resume. The default
            with ``service``.
        replicas: iterable datasets that never ask ``get_worker_info()``, without ``worker_init_fn``. ``"once"``: one
            worker reads them, so that each sample comes once; ``"torch"``: each worker gives all samples.
        service: the address of a service, ``"stoker://host:port"``, whose workers fetch the samples; they must allow
            code.
        job: a name for people, with ``service``.
    """

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int | Literal["auto"] = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        worker_method: Method | None = None,
        seeding: Seeding | None = None,
        replicas: Replicas = "once",
        service: str | None = None,
        job: str = "default",
    ) -> None:
        if isinstance(dataset, Pipeline):
            raise SpecError("a stoker.Pipeline is no torch dataset: take stoker.DataLoader(pipeline)")
        if worker_method is None:
            worker_method = "auto" if num_workers == "auto" else "multiprocessing"
        if num_workers == "auto":
            num_workers = _DEFAULT_AT_SERVICE if service else len(os.sched_getaffinity(0))
        elif service and num_workers == 0:
            num_workers = _DEFAULT_AT_SERVICE
        self.worker_method: Method = _one_of("worker_method", worker_method, Method)
        self.seeding: Seeding = _one_of("seeding", seeding or ("sample" if service else "worker"), Seeding)
        self.replicas: Replicas = _one_of("replicas", replicas, Replicas)
        self.service = service
        self.job = job
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        operator.index(num_workers)  # raises what torch raises when it begins to iterate
        if self.num_workers > 0 and self.prefetch_factor == 0:
            raise SpecError("prefetch_factor=0 lets workers make nothing; give 1 or more")
        self._is_iterable = isinstance(dataset, IterableDataset)
        self._begin_without_workers()
        self._closed = False
        may_replicate = replicas == "once" and num_workers > 1 and worker_init_fn is None
        self._knows_workers: bool | None = None if may_replicate else True
        self._resolved_method: Method | None = None
        self._saved: Saved | None = None
        self._loaded: dict[str, Any] = {}
        if num_workers > 0 and service is None and multiprocessing_context is None and worker_method != "thread":
            warm()

    def _begin_without_workers(self) -> None:
        """What a copy of a loader has of its own: workers, and what they are at."""
        self._iterator = None
        self._idle: deque[Crew] = deque()
        self._crews: weakref.WeakSet[Crew] = weakref.WeakSet()
        self._pid = os.getpid()
        self._progress: Progress | None = None
        self._times = Times()

    # -- iterating ----------------------------------------------------------------------------------------------------

    def _get_iterator(self) -> Any:
        """What torch's ``__iter__`` calls for a new iteration, and with ``persistent_workers`` for the first one."""
        if self._closed:
            raise ClosedError("this DataLoader was closed; make a new one")
        if isinstance(self.dataset, (IterDataPipe, MapDataPipe)):
            return super()._get_iterator()  # what torch does with its own graphs of pipes stays torch's
        if self.num_workers == 0:
            return LocalIterator(self)
        self.check_worker_number_rationality()
        return WorkerIterator(self, self._free_crew())

    def check_worker_number_rationality(self) -> None:
        """torch's warning about more workers than cores; a service's workers are not of this machine."""
        if self.service is None:
            super().check_worker_number_rationality()

    def _free_crew(self) -> Crew:
        """A crew that no iteration uses: several iterations at once have one each."""
        if self._pid != os.getpid():  # a fork: the workers are its parent's
            self._pid = os.getpid()
            self._idle.clear()
            self._crews.clear()
        if self._idle:
            return self._idle.pop()
        crew = self._new_crew()
        self._crews.add(crew)
        return crew

    def _new_crew(self) -> Crew:
        if self.service is not None:
            open_crew: OpenCrew = services.opener(self.service, CREW_GROUP)
            return open_crew(self.service, CrewOptions(self.num_workers, self.timeout, self.job))
        if self.worker_method == "auto":
            self._resolved_method = self._resolved_method or auto.choose(self)
        if (self._resolved_method or self.worker_method) == "thread":
            return ThreadCrew(self.num_workers)
        context = self.multiprocessing_context
        method: StartMethod = "forkserver" if context is None else context.get_start_method()
        return ProcessCrew(self.num_workers, method=method)

    def _begin_progress(self) -> Progress:
        """The account of a new iteration, which goes on from a state that was loaded and not used yet."""
        self._progress = Progress(self, self._saved)
        return self._progress

    def _job(self, base_seed: int, states: tuple[Any, ...] = (), *, goes_on: bool = False) -> Job:
        return Job(
            dataset=self.dataset,
            collate_fn=self.collate_fn,
            worker_init_fn=self.worker_init_fn,
            is_iterable=self._is_iterable,
            auto_collation=self._auto_collation,
            drop_last=self.drop_last,
            base_seed=base_seed,
            seeding=self.seeding,
            num_workers=self.num_workers,
            goes_on=goes_on,
            wants_state=self._is_iterable,
            states=states,
        )

    # -- state --------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """How far the latest iteration is consumed: what was handed out, not what is prefetched.

        For map-style datasets: JSON values, below 4 KiB with torch's samplers. For iterable ones also the states that
        the dataset gave, whatever they are.
        """
        if self._saved is not None:
            return dict(self._loaded)
        if self._progress is None:
            return to_state(self, TrackedSampler(self._index_sampler, self.generator).position(), None)
        return self._progress.state(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iteration go on where a state was saved.

        Map-style datasets read nothing of what came before. Raises StateError if the state is of another kind of
        loader; says what differs.
        """
        self._saved = from_state(self, state)
        self._loaded = dict(state)
        if self._saved is not None:
            prepare(self._index_sampler, self._saved.position)

    # -- the rest -----------------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Running counters since the loader was made, and ``limited_by``: ``dataset`` or ``trainer``."""
        method = self._resolved_method or self.worker_method
        return {**asdict(self._times), "limited_by": self._times.limited_by, "worker_method": method}

    def close(self) -> None:
        """End all workers, within 2 s; iterations that are under way end with an error. Harmless again."""
        self._closed = True
        if self._pid == os.getpid():
            for crew in list(self._crews):
                crew.close()
        self._idle.clear()

    def __getstate__(self) -> dict[str, Any]:
        """All but what :meth:`_begin_without_workers` makes."""
        own = {"_idle", "_crews", "_pid", "_progress", "_iterator", "_times"}
        return {name: value for name, value in vars(self).items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin_without_workers()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _one_of(name: str, value: Any, choices: Any) -> Any:
    if value not in get_args(choices):
        raise SpecError(f"{name} is {value!r}; expected one of {', '.join(map(repr, get_args(choices)))}")
    return value
