"""The dispatcher as a server on a port."""

from __future__ import annotations

import logging
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from stoker.errors import ClosedError, StokerError
from stoker_proto.v1 import control_pb2_grpc
from stoker_service.addresses import Address
from stoker_service.dispatcher.events import Tick
from stoker_service.dispatcher.model import Settings
from stoker_service.dispatcher.probe import Prober
from stoker_service.dispatcher.servicer import Servicer
from stoker_service.dispatcher.shell import Shell
from stoker_service.dispatcher.snapshot import Snapshot
from stoker_service.options import DispatcherOptions

SERVICE = "stoker_proto.v1.ControlService"

_LOG = logging.getLogger("stoker.dispatcher")
_NUM_THREADS = 32
_TICKS_PER_BEAT = 4
_GRACE_S = 0.3
_MAX_RECEIVED_BYTES = 64 << 20  # larger than the limit we set, so that our text says what is wrong


class DispatcherServer:
    """A dispatcher on a port. Any thread may call; :meth:`stop` again and at any time.

    Threads: gRPC's own and its pool, which is ours, and a ticker. All have ended when :meth:`stop` or :meth:`wait`
    returns.
    """

    def __init__(self, options: DispatcherOptions, *, prober: Prober | None = None) -> None:
        self._options = options
        self._settings = Settings(secrets.token_hex(8), options.beat_s, options.forget_s, options.until_jobs_end)
        self._shell = Shell(self._settings, prober or Prober(), self._end)
        self._pool = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="stoker-dispatcher")
        self._health = health.HealthServicer()
        self._server = self._make_server()
        self._ticker = threading.Thread(target=self._tick, name="stoker-dispatcher-ticker", daemon=True)
        self._port = 0
        self._code = 0
        self._is_over = threading.Event()
        self._close_lock = threading.Lock()
        self._is_closed = False

    @property
    def address(self) -> str:
        """Where it listens, as ``stoker://HOST:PORT``. Known after :meth:`start`."""
        return str(Address(self._options.host, self._port))

    def start(self) -> None:
        """Listen; returns when calls are answered. Raises StokerError if the port cannot be had."""
        if self._is_closed:
            raise ClosedError("the dispatcher was stopped; make another one")
        target = Address(self._options.host, self._options.port).target
        try:
            self._port = self._server.add_insecure_port(target)
        except RuntimeError as error:
            raise self._no_port(target) from error
        if not self._port:  # how older releases of grpcio say it
            raise self._no_port(target)
        for service in ("", SERVICE):
            self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        self._server.start()
        self._ticker.start()

    def wait(self) -> int:
        """Wait for the end, by :meth:`stop` or as the state decides; returns the exit code: 0, or 3 for a lost job."""
        self._is_over.wait()
        self._close()
        return self._code

    def stop(self) -> None:
        """End now, within a second: calls under way get a moment, streams between workers and clients go on."""
        self._is_over.set()
        self._close()

    def snapshot(self) -> Snapshot:
        """What it sees at the moment."""
        return self._shell.now(lambda state, now_s: state.snapshot(now_s))

    def _make_server(self) -> grpc.Server:
        server = grpc.server(
            self._pool,
            options=[
                ("grpc.so_reuseport", 0),  # a second dispatcher on this port must fail, not take every other call
                ("grpc.max_receive_message_length", _MAX_RECEIVED_BYTES),
                ("grpc.max_send_message_length", -1),
            ],
        )
        methods = Servicer(self._shell, self._settings).methods()
        control_pb2_grpc.add_ControlServiceServicer_to_server(methods, server)  # type: ignore[no-untyped-call]  # generated
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        return server

    def _tick(self) -> None:
        while not self._is_over.wait(self._options.beat_s / _TICKS_PER_BEAT):
            try:
                self._shell.tell(Tick(), lambda _: None)
            except Exception:  # noqa: BLE001 -- this thread's outermost loop; without it nobody would notice the dead
                _LOG.exception("the dispatcher ends by a fault of its own")
                self._end(1)

    def _end(self, code: int) -> None:
        self._code = code
        self._is_over.set()

    def _close(self) -> None:
        with self._close_lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._health.enter_graceful_shutdown()
            self._server.stop(_GRACE_S).wait(2 * _GRACE_S)
            self._pool.shutdown(wait=True)
            if self._ticker.ident is not None:
                self._ticker.join()

    def _no_port(self, target: str) -> StokerError:
        return StokerError(
            f"the dispatcher cannot listen on {target}: expected a free port of this machine, found it taken or not "
            "ours; is a dispatcher running there? Choose another --port, or 0 for any"
        )
