"""A whole service whose workers are a fleet: its dispatcher runs in the process of ``stoker up``."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from stoker_service import addresses, lifecycle
from stoker_service.addresses import WILDCARDS, Address
from stoker_service.engines.engine import Absent, Fleet, Running
from stoker_service.options import LOOPBACK, UpOptions

if TYPE_CHECKING:
    from stoker_service.dispatcher.server import DispatcherServer
    from stoker_service.http import Pages

CONNECT_S = 30.0
START_S = 60.0  # until the workers answer; those that do not may still come
DRAIN_S = 2.0  # after SIGTERM; all is over within 5 s, whatever the workers' drain_s
_LOOPBACKS = frozenset({LOOPBACK, "localhost", "::1"})

_LOG = logging.getLogger("stoker.up")


class FleetService:
    """What :func:`stoker_service.lifecycle.serve` runs: a dispatcher here and a fleet elsewhere."""

    def __init__(self, options: UpOptions, fleet: Fleet, say: Callable[[str], None]) -> None:
        self._options = options
        self._fleet = fleet
        self._say = say
        self._dispatcher: DispatcherServer | None = None
        self._pages: Pages | None = None
        self._address = Address(options.host, options.port)
        self._lock = threading.Lock()
        self._is_stopped = False

    def start(self) -> None:
        """Connect, listen, and ask for the workers; returns when they answer, or when they had time to."""
        from stoker_service.dispatcher.server import DispatcherServer

        node = self._fleet.connect(CONNECT_S)
        host = dispatcher_host(self._options, node)
        dispatcher = DispatcherServer(replace(self._options.for_dispatcher(), host=host))
        self._open_pages(dispatcher)
        dispatcher.start()
        self._dispatcher = dispatcher
        listening = addresses.parse(dispatcher.address)
        self._address = Address(node if host in WILDCARDS else host, listening.port)
        self._fleet.start(self._address, self._options.num_workers)
        self._tell(self._fleet.workers(START_S))

    def announce(self) -> None:
        """Say where it can be reached."""
        self._say(f"up {self._address}")
        if self._pages is not None:
            self._say(f"http {self._pages.url}")

    def wait(self) -> int:
        """Wait for the dispatcher's end, and end the fleet."""
        assert self._dispatcher is not None, "start() came before"
        code = self._dispatcher.wait()
        self._end(DRAIN_S)
        return code

    def drain(self) -> None:
        """End in good order."""
        self._end(DRAIN_S)

    def stop(self) -> None:
        """End now."""
        self._end(0.0)

    def _end(self, drain_s: float) -> None:
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
        self._fleet.stop(drain_s)  # first, so that the workers can tell the dispatcher
        if self._dispatcher is not None:
            self._dispatcher.stop()
        if self._pages is not None:
            self._pages.close()

    def _open_pages(self, dispatcher: DispatcherServer) -> None:
        from stoker_service import metrics
        from stoker_service.http import Pages

        options = self._options
        if options.http_port is not None:
            self._pages = Pages(
                options.http_host,
                options.http_port,
                unready=lambda: None if self._dispatcher is not None else "the dispatcher is starting",
                metrics=metrics.page(lambda: metrics.dispatcher_families(dispatcher.snapshot())),
            )

    def _tell(self, workers: tuple[Running | Absent, ...]) -> None:
        for worker in workers:
            _LOG.info("%s", worker)
        num_absent = sum(isinstance(worker, Absent) for worker in workers)
        if num_absent:
            _LOG.warning(
                "%d of %d workers do not answer after %g s: no machine has room for them, or has Stoker installed; "
                "going on with the others",
                num_absent,
                len(workers),
                START_S,
            )


def dispatcher_host(options: UpOptions, node: str) -> str:
    """Return where the dispatcher listens: for loopback, which other machines cannot reach, the address ``node``."""
    return node if options.host in _LOOPBACKS else options.host


def run(options: UpOptions, fleet: Fleet, say: Callable[[str], None]) -> int:
    """Run the service until it ends; return the exit code."""
    service = FleetService(options, fleet, say)
    return lifecycle.serve(service, service.announce)
