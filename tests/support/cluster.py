"""A service of real processes on loopback: ``with Cluster(folder, num_workers=2) as cluster``.

Its processes are started by the command line, as users start them, and killed, frozen and drained by their process id.
All of them end with the block, in any case, and with the test's process even if that one is killed. What they printed
is shown when a test fails that has a cluster among its fixtures (see ``tests/cluster/conftest.py``) or in a ``with``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import grpc

import stoker
from stoker_proto.v1 import control_pb2, control_pb2_grpc
from support import programs
from support.proxy import HOST as PROXY_HOST
from support.proxy import Proxies, Proxy

BEAT_S = 0.25
LEASE_S = 3 * BEAT_S
"""A peer that is silent for so long is dead to the dispatcher."""

DEADLINE_S = 60.0
"""For any one wait; what it waits for takes a second or two on a quiet machine."""

_POLL_S = 0.02
_LOG_LINES = 80
# Below the range that systems take ports from for outgoing connections: a port is still free when its owner is back.
_PORTS = range(18_000, 32_000)
_CHANNEL = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
]
# Ends with the test's process, however that ends.
_BOOT = """
import ctypes, runpy, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
sys.argv[:] = [sys.argv[1], *sys.argv[2:]]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""

T = TypeVar("T")


def until(what: str, condition: Callable[[], T | None], timeout_s: float = DEADLINE_S) -> T:
    """Wait until ``condition`` gives something true, and return that; ``what`` is said if it never does."""
    end_s = time.monotonic() + timeout_s
    pause = threading.Event()
    while not (found := condition()):
        assert time.monotonic() < end_s, f"not within {timeout_s:g} s: {what}"
        pause.wait(_POLL_S)
    return found


def free_port(*more_hosts: str) -> int:
    """A port of 127.0.0.1, and of others, that nobody uses now, of those that the system gives to nobody by itself."""
    for port in iter(lambda: random.SystemRandom().choice(_PORTS), None):
        if all(_is_free(host, port) for host in ("127.0.0.1", *more_hosts)):
            return port
    raise AssertionError("unreachable")


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


class Child:
    """A process whose standard output is read line by line; its standard error goes to a file."""

    def __init__(self, name: str, log: Path, module: str, arguments: Sequence[str], *, takes_orders: bool = False):
        self.name, self._log = name, log
        self.is_ready = False
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, module, *arguments],
                env=programs.environment(),
                stdin=subprocess.PIPE if takes_orders else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name=f"lines of {name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def next_line(self, timeout_s: float = DEADLINE_S) -> str | None:
        """The next line of standard output, without its end; None once there is no more."""
        try:
            return self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise AssertionError(f"{self.name} printed no line within {timeout_s:g} s\n{self.log()}") from None

    def rest(self) -> list[str]:
        """The lines not read yet of a process that has ended."""
        self.wait()
        return list(iter(self.next_line, None))

    def order(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Kill -9, and wait until it is gone; harmless if it was."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM; returns at once."""
        self.process.terminate()

    def wait(self, timeout_s: float = DEADLINE_S) -> int:
        """Its exit status, once it has ended by itself."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {timeout_s:g} s\n{self.log()}") from None

    def close(self) -> None:
        """Kill it if it runs, and close its pipes."""
        self.kill()
        self._reader.join(DEADLINE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def rss_bytes(self) -> int:
        """Memory that it holds now, shared memory included."""
        return int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def log(self) -> str:
        """The end of what it wrote to standard error, with a heading."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
        status = self.process.poll()
        state = "running" if status is None else f"exit status {status}"
        return "\n".join([f"-- {self.name}, process {self.pid}, {state} --", *lines])

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError):  # closed under our hands
            for line in self.process.stdout:
                if line.endswith("\n"):  # one that a kill cut short was not said
                    self._lines.put(line.rstrip("\n"))
        self._lines.put(None)


class Dispatcher(Child):
    """A dispatcher; its first line is its address."""

    def __init__(self, log: Path, port: int, *options: str):
        arguments = ["dispatcher", "--port", str(port), "--beat-s", str(BEAT_S), *options]
        super().__init__("dispatcher", log, "stoker_service", arguments)

    def ready(self) -> Self:
        """Wait for its first line."""
        if not self.is_ready:
            words = (self.next_line() or "").split()
            assert words[:1] == ["dispatcher"], f"a dispatcher's first line is {words}\n{self.log()}"
            self.is_ready = True
        return self


class Worker(Child):
    """A worker; its first line is its location and its id. ``proxy`` is what clients connect to, if there is one."""

    def __init__(self, name: str, log: Path, dispatcher: str, proxy: Proxy | None, *options: str):
        self.proxy = proxy
        arguments = ["worker", "--dispatcher", dispatcher, "--worker-id", name, *options]
        if proxy is not None:
            arguments += ["--port", str(proxy.port), "--advertise", PROXY_HOST]
            proxy.forward_to(proxy.port)
        super().__init__(name, log, "stoker_service", arguments)

    def ready(self) -> Self:
        """Wait for its first line."""
        if not self.is_ready:
            words = (self.next_line() or "").split()
            assert words[:1] == ["worker"], f"a worker's first line is {words}\n{self.log()}"
            assert words[2] == self.name
            self.is_ready = True
        return self


class Cluster:
    """A dispatcher and its workers. For one thread; that one must live as long as the processes."""

    def __init__(
        self,
        folder: Path,
        num_workers: int = 0,
        *,
        proxies: Proxies | None = None,
        worker_options: Sequence[str] = ("--num-threads", "1"),
        dispatcher_options: Sequence[str] = (),
    ) -> None:
        """With ``proxies``, the dispatcher and each worker are reached through a proxy of their own by everybody."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._proxies = folder, proxies
        self._worker_options, self._dispatcher_options = tuple(worker_options), tuple(dispatcher_options)
        self._numbers = itertools.count()
        self._ended: list[Child] = []
        self.port = free_port()
        self.workers: list[Worker] = []
        self.proxy = proxies.listen() if proxies else None
        if self.proxy:
            self.proxy.forward_to(self.port)
        self._channel = grpc.insecure_channel(f"127.0.0.1:{self.port}", _CHANNEL)
        self.control: Any = control_pb2_grpc.ControlServiceStub(self._channel)  # type: ignore[no-untyped-call]
        try:
            self.dispatcher = self._dispatcher().ready()
            self.start_workers(num_workers)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *rest: object) -> None:
        if exc_type is not None:
            sys.stderr.write(self.logs() + "\n")
        self.close()

    @property
    def url(self) -> str:
        """What a loader takes as ``service``."""
        return f"stoker://{self.proxy.address if self.proxy else f'127.0.0.1:{self.port}'}"

    # -- its processes ------------------------------------------------------------------------------------------------

    def start_worker(self, *options: str) -> Worker:
        """Start one more worker and wait for its first line."""
        return self.begin_worker(*options).ready()

    def begin_worker(self, *options: str) -> Worker:
        """Start one more worker; it comes when it is ready."""
        self.workers.append(self._worker(*options))
        return self.workers[-1]

    def replace(self, index: int, *options: str) -> Worker:
        """Start a worker in the place of this one, which is returned and is the caller's to :meth:`bury`."""
        old, self.workers[index] = self.workers[index], self._worker(*options)
        return old

    def _worker(self, *options: str) -> Worker:
        number = next(self._numbers)
        proxy = self._proxies.listen(free_port(PROXY_HOST)) if self._proxies else None
        arguments = (*self._worker_options, *options)
        return Worker(f"w{number}", self._log(f"w{number}"), self.url, proxy, *arguments)

    def start_workers(self, num_workers: int) -> None:
        """Start so many more, side by side, and wait until the dispatcher knows all of them."""
        begun = [self.begin_worker() for _ in range(num_workers)]
        for worker in begun:
            worker.ready()
        if begun:
            self.wait_for_workers(self.workers)

    def scale_to(self, num_workers: int) -> None:
        """Start workers, or drain those that were started last, and wait until they are there, or have ended well."""
        leaving = self.workers[num_workers:]
        for worker in leaving:
            worker.terminate()
        for worker in leaving:
            assert worker.wait() == 0, worker.log()
            self.bury(worker)
        self.start_workers(num_workers - len(self.workers))

    def bury(self, worker: Worker) -> None:
        """Kill a worker if it runs, and keep its log only."""
        worker.close()
        if worker in self.workers:
            self.workers.remove(worker)
        self._ended.append(worker)

    def restart_dispatcher(self) -> None:
        """Kill the dispatcher if it runs, and start another at the same address."""
        self.begin_dispatcher().ready()

    def begin_dispatcher(self) -> Dispatcher:
        """Kill the dispatcher if it runs, and start another at the same address, which comes when it is ready."""
        self.dispatcher.close()
        self.dispatcher = self._dispatcher()
        return self.dispatcher

    def close(self) -> None:
        """Kill all that runs."""
        running: list[Child] = [*self.workers]
        if hasattr(self, "dispatcher"):
            running.append(self.dispatcher)
        for child in running:
            child.process.kill()
        for child in running:
            child.close()
        self._channel.close()

    # -- what it says -------------------------------------------------------------------------------------------------

    def status(self) -> control_pb2.StatusResponse | None:
        """What the dispatcher says, or None if it does not answer."""
        try:
            answer: control_pb2.StatusResponse = self.control.Status(control_pb2.StatusRequest(), timeout=5)
        except grpc.RpcError:
            return None
        return answer

    def wait_for(self, what: str, condition: Callable[[control_pb2.StatusResponse], object]) -> None:
        """Wait until the dispatcher's status is as it should be."""
        latest: list[control_pb2.StatusResponse] = []

        def holds() -> bool:
            status = self.status()
            latest[:] = [status] if status is not None else []
            return status is not None and bool(condition(status))

        try:
            until(what, holds)
        except AssertionError as error:
            raise AssertionError(f"{error}; the latest status: {latest}\n{self.logs()}") from None

    def wait_for_workers(self, workers: Sequence[Worker]) -> None:
        """Wait until exactly these are alive to the dispatcher."""
        names = sorted(worker.name for worker in workers)
        self.wait_for(f"alive are {names}", lambda status: alive(status) == names)

    def owners(self) -> set[str]:
        """The names of the workers that own a lane of any job."""
        status = self.status()
        assert status is not None
        return {owner.worker_id for job in status.jobs for owner in job.assignment.owners}

    def rows_made(self, pipeline: stoker.Pipeline) -> int:
        """Rows that the workers have made for a pipeline, as their beats tell."""
        status = self.status()
        assert status is not None
        fingerprint = pipeline.fingerprint
        return sum(job.rows for worker in status.workers for job in worker.beat.jobs if job.pipeline == fingerprint)

    def logs(self) -> str:
        """The end of what each process wrote, the ended ones too."""
        children: list[Child] = [*self._ended, *self.workers]
        if hasattr(self, "dispatcher"):
            children.append(self.dispatcher)
        return "\n".join(child.log() for child in children)

    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(self._log("dispatcher"), self.port, *self._dispatcher_options)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def alive(status: control_pb2.StatusResponse) -> list[str]:
    """The names of the workers that the dispatcher takes for alive."""
    return sorted(worker.worker.worker_id for worker in status.workers if worker.state == "alive")
