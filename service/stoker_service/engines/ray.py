"""Workers as actors of a Ray cluster that is already there."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from stoker.errors import MissingDependencyError, SpecError, StallError, StokerError
from stoker_service import lifecycle
from stoker_service.addresses import Address
from stoker_service.engines import service
from stoker_service.engines.engine import Absent, Running, threads_that_fit
from stoker_service.options import UpOptions, WorkerOptions

ADDRESS_VARIABLE = "RAY_ADDRESS"  # Ray's own; set in what `ray job submit` runs, too
NAMESPACE = "stoker"

# A report and the wait for the end run side by side with a drain.
_MAX_CONCURRENCY = 4
# Between "end now" and the moment when Ray kills the process.
_END_S = 1.0

_LOG = logging.getLogger("stoker.ray")


class WorkerActor:
    """A worker inside an actor's process.

    Ray makes it anew, in another process, when the process dies: as another worker, as far as the dispatcher knows,
    which forgets the one that is gone. One that ended in good order exits so that Ray leaves it.
    """

    def __init__(self, name: str, options: WorkerOptions) -> None:
        from stoker.memory.malloc import keep_memory
        from stoker_service.worker.server import WorkerServer

        keep_memory()  # the process is this actor's alone
        lifecycle.log_to_stderr(name)
        self._name = name
        self._host = _ray().util.get_node_ip_address()
        self._server = WorkerServer(replace(options, host=self._host))
        self._server.start(preload=True)

    def report(self) -> Running:
        """Say where it runs."""
        return Running(self._name, self._server.worker_id, self._server.location, self._host, os.getpid())

    def run(self) -> None:
        """Wait for the worker's end, and end the actor: for good, or to be made anew if the worker failed."""
        code = self._server.wait()
        if code != lifecycle.EXIT_GOOD:
            os._exit(code)
        _ray().actor.exit_actor()

    def drain(self) -> None:
        """Begin to end in good order."""
        self._server.drain()

    def stop(self) -> None:
        """End now."""
        self._server.stop()


@dataclass(slots=True)
class _Place:
    """An actor and what was asked of it: ``run`` ends with it, ``report`` is at most one at a time."""

    name: str
    actor: Any
    run: Any
    report: Any = None


class RayFleet:
    """A fleet (see ``engine.py``) of Ray actors, spread over the cluster's nodes.

    Each takes as many of the cluster's CPUs as it has decoding threads, and with ``device="cuda"`` one GPU, the only
    one that it then sees. A driver that has called ``ray.init`` itself keeps its connection; else the fleet connects to
    the cluster of ``RAY_ADDRESS``, or to the one that runs on this machine, and starts none.
    """

    def __init__(self, options: UpOptions) -> None:
        self._ray = _ray()
        self._options = options
        self._is_ours = False  # the connection
        self._dispatcher: Address | None = None
        self._num_threads = 1
        self._places: list[_Place] = []
        self._leaving: list[_Place] = []

    def connect(self, timeout_s: float) -> str:
        """Connect to the cluster; return this node's address in it. Raises StokerError if there is none."""
        if not self._ray.is_initialized():
            _connect(os.environ.get(ADDRESS_VARIABLE, "auto"), timeout_s)
            self._is_ours = True
        return str(self._ray.util.get_node_ip_address())

    def start(self, dispatcher: Address, num_workers: int) -> None:
        """Ask Ray for so many actors. Raises StokerError if it refuses them."""
        self._dispatcher = dispatcher
        self._num_threads = self._options.num_threads or threads_that_fit(_cores(), num_workers)
        self.scale(num_workers)

    def scale(self, num_workers: int) -> None:
        """Ask for more actors, or drain the last ones."""
        while len(self._places) > num_workers:
            leaving = self._places.pop()
            leaving.actor.drain.remote()
            self._leaving.append(leaving)
        while len(self._places) < num_workers:
            self._places.append(self._placed(len(self._places)))

    def workers(self, timeout_s: float) -> tuple[Running | Absent, ...]:
        """Ask each where it runs."""
        for place in self._places:
            place.report = place.report or place.actor.report.remote()
        asked = [place.report for place in self._places]
        if asked:
            self._ray.wait(asked, num_returns=len(asked), timeout=timeout_s)
        return tuple(_answered(place) for place in self._places)

    def stop(self, drain_s: float) -> None:
        """Drain the actors, have Ray kill those that are left, and leave the cluster if the connection is ours."""
        places = [*self._places, *self._leaving]
        self._places, self._leaving = [], []
        late_s = time.monotonic() + drain_s
        for place in places:
            place.actor.drain.remote()
        left = _left(places, max(0.0, late_s - time.monotonic()))
        for place in left:
            place.actor.stop.remote()
        for place in _left(left, _END_S):
            self._ray.kill(place.actor, no_restart=True)
        if self._is_ours:
            self._ray.shutdown()
            self._is_ours = False

    def _placed(self, index: int) -> _Place:
        assert self._dispatcher is not None, "start() tells it"
        # Unique in the cluster for as long as the dispatcher's address is; a drained one may still have its name.
        name = f"{self._dispatcher}/worker-{index}"
        taken = sum(place.name.startswith(name) for place in self._leaving)
        name += f"-{taken}" if taken else ""
        actor = (
            self._ray.remote(WorkerActor)
            .options(
                name=name,
                namespace=NAMESPACE,
                num_cpus=self._num_threads,
                num_gpus=int(self._options.made_by.is_gpu),
                max_restarts=-1,
                max_task_retries=-1,
                max_concurrency=_MAX_CONCURRENCY,
                scheduling_strategy="SPREAD",
            )
            .remote(name, self._worker_options())
        )
        return _Place(name, actor, actor.run.remote())

    def _worker_options(self) -> WorkerOptions:
        options = self._options
        assert self._dispatcher is not None, "start() tells it"
        return WorkerOptions(
            str(self._dispatcher),
            advertise=None if options.advertise in {None, options.host} else options.advertise,
            num_threads=self._num_threads,
            memory_bytes=options.memory_bytes,
            read_bytes=options.read_bytes,
            allow_code=options.allow_code,
            drain_s=options.drain_s,
            arena=options.arena,
            cache_dir=options.cache_dir,
            cache_bytes=options.cache_bytes,
            cache_ram_bytes=options.cache_ram_bytes,
            backend=options.backend,
            device=options.device,
            placement=options.placement,
            device_bytes=options.device_bytes,
        )


def _answered(place: _Place) -> Running | Absent:
    ray = _ray()
    done, _ = ray.wait([place.report], timeout=0)
    if not done:
        return Absent(place.name)
    report, place.report = place.report, None
    try:
        found = ray.get(report)
    except ray.exceptions.RayError as error:
        _LOG.warning("%s does not answer: %s", place.name, str(error).partition("\n")[0])
        return Absent(place.name)
    assert isinstance(found, Running)
    return found


def _left(places: list[_Place], timeout_s: float) -> list[_Place]:
    """Return those that have not ended within ``timeout_s``."""
    if not places:
        return []
    _, running = _ray().wait([place.run for place in places], num_returns=len(places), timeout=timeout_s)
    return [place for place in places if place.run in running]


def _cores() -> list[float]:
    """CPUs of each node that is there, whoever uses them, but for one: trainers of this cluster want some, too."""
    found = [node["Resources"].get("CPU", 0.0) for node in _ray().nodes() if node["Alive"]]
    return [cores - 1 if cores > 1 else cores for cores in found]


def _ray() -> Any:
    """The package, whose types cover only a part of it. Raises MissingDependencyError."""
    try:
        import ray
    except ImportError as error:
        raise MissingDependencyError("--engine ray needs Ray: pip install 'stoker[ray]'") from error
    return ray


def _connect(address: str, timeout_s: float) -> None:
    """Connect in a thread: Ray tries for a very long time, and would take SIGTERM's handler from a main thread."""
    if address.startswith("ray://"):
        raise SpecError(
            f"{ADDRESS_VARIABLE}={address!r}: workers reach the dispatcher only on a node of the cluster; run "
            "`stoker up --engine ray` on one (`ray job submit` does), with the address that `ray status` shows there"
        )
    ray = _ray()
    failed: list[BaseException] = []

    def connect() -> None:
        try:
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            failed.append(error)

    thread = threading.Thread(target=connect, name="stoker-ray-connect", daemon=True)
    thread.start()
    thread.join(timeout_s)
    hint = f"start one (`ray start --head`), or name one in {ADDRESS_VARIABLE} as HOST:PORT"
    if thread.is_alive():
        raise StallError(f"the Ray cluster {address!r} did not answer within {timeout_s:g} s; {hint}")
    if failed:
        raise StokerError(f"no Ray cluster at {address!r}: {failed[0]}; {hint}") from failed[0]


def run(options: UpOptions, say: Callable[[str], None]) -> int:
    """Run a service whose workers are actors until it ends; return the exit code.

    For a process that is ours: Ray's messages go to stderr meanwhile, since stdout is where we say how we are reached.
    """
    out = sys.stdout

    def aloud(line: str) -> None:
        with contextlib.redirect_stdout(out):
            say(line)

    with contextlib.redirect_stdout(sys.stderr):
        return service.run(options, RayFleet(options), aloud)
