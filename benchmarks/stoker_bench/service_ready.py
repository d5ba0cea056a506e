"""Senders of batches that are ready: a worker that makes none, and a bare TCP socket.

Each is a process of its own, ``python -m stoker_bench.service_ready worker …`` (what ``stoker worker`` takes) or
``… socket PATTERN BATCH_SIZE PARENT_PID``. The worker is the real one but for its :class:`Maker`, whose batches are a
few that were made at the first need, again and again; the socket sends the same batches' bytes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import stoker
from stoker.engine.chunk_source import ChunkSource
from stoker.engine.feed import Work
from stoker.engine.maker import Maker
from stoker.engine.ticket import Ticket
from stoker_bench import rates
from stoker_bench.service_processes import Process, Service
from stoker_bench.service_stream import FLIGHT, MEMORY, SOCKET, Link, ServiceLink, SocketLink

if TYPE_CHECKING:
    import pyarrow as pa

    from stoker.backends.program import Program
    from stoker.batch.pool import BufferPool
    from stoker.formats.dataset import Dataset

NUM_READY = 4


def pipeline(pattern: str, batch_size: int) -> stoker.Pipeline:
    """Return the preset in one lane, which is one stream."""
    return stoker.Pipeline.preset("imagenet_train", pattern, batch_size=batch_size, lanes=1)


@contextlib.contextmanager
def links(pattern: str, batch_size: int) -> Iterator[dict[str, Link]]:
    """Start both senders and connect to them."""
    module = "stoker_bench.service_ready"
    with contextlib.ExitStack() as stack:
        sender = Process(module, ["socket", pattern, str(batch_size), str(os.getpid())])
        stack.callback(sender.close)
        bare = stack.enter_context(contextlib.closing(SocketLink(int(sender.first_line()))))
        found: dict[str, Link] = {SOCKET: bare}
        for name, arena in ((FLIGHT, False), (MEMORY, True)):
            service = stack.enter_context(Service(1, 1, arena=arena, worker_module=module))
            link = ServiceLink(service.url, pipeline(pattern, batch_size))
            found[name] = stack.enter_context(contextlib.closing(link))
        yield found


def made(pipeline: stoker.Pipeline) -> list[pa.RecordBatch]:
    """Make the batches that are sent again and again."""
    with stoker.DataLoader(pipeline, output="arrow", rank=0, world_size=1) as loader:
        return list(itertools.islice(rates.endless(loader), NUM_READY))


class ReadyMaker(Maker):
    """A maker whose every batch is there: nothing is read, nothing decoded."""

    def __init__(
        self,
        pipeline: stoker.Pipeline,
        dataset: Dataset,
        source: ChunkSource,
        program: Program,
        pool: BufferPool,
        *others: Any,
        **more: Any,
    ) -> None:
        super().__init__(pipeline, dataset, source, program, pool, *others, **more)
        self._started: queue.SimpleQueue[Ticket] = queue.SimpleQueue()
        # Of its own, as decoders are: whoever starts a ticket may hold a lock that on_made wants.
        arguments = (pipeline, pool)
        threading.Thread(target=self._finish_all, args=arguments, name="stoker-bench-ready", daemon=True).start()

    def bytes_to_read(self, work: Work) -> int:  # noqa: ARG002  # the seam's
        return 0

    def plan(self, number: int, work: Work) -> Ticket:
        return Ticket(number, work, num_missing=0, ready_s=time.monotonic())

    def start(self, ticket: Ticket) -> None:
        self._started.put(ticket)

    def leave(self, lane_index: int) -> None:
        """No window is open."""

    def _finish_all(self, pipeline: stoker.Pipeline, pool: BufferPool) -> None:
        for batch in itertools.cycle([_placed(batch, pool) for batch in made(pipeline)]):
            ticket = self._started.get()
            ticket.batch = batch
            self._events.on_made(ticket)


def _placed(batch: pa.RecordBatch, pool: BufferPool) -> pa.RecordBatch:
    """Copy a batch into memory of the worker's pool, where its makers would have put it: its arena, if it has one."""
    from stoker_service.transport.decode import Assembly
    from stoker_service.transport.encode import encode

    encoded = encode(batch)
    assembly = Assembly(encoded.num_bytes, pool)
    for piece in encoded.pieces:
        assembly.add_bytes(memoryview(piece))
    return assembly.finish()


def main(arguments: Sequence[str]) -> None:
    """Be one of the senders."""
    kind, *rest = arguments
    if kind == "socket":
        pattern, batch_size, parent_pid = rest
        from stoker_service import lifecycle

        lifecycle.end_with_parent(int(parent_pid))
        _serve_socket(pipeline(pattern, int(batch_size)))
    else:
        from stoker_service import cli
        from stoker_service.worker import producer

        assert vars(producer)["Maker"] is Maker, "the producer makes its maker by this name"
        vars(producer)["Maker"] = ReadyMaker
        sys.argv = ["stoker", kind, *rest]
        cli.main()


def _serve_socket(pipeline: stoker.Pipeline) -> None:
    """Tell the size of a batch, then send as many as are asked for, to one peer."""
    from stoker_service.transport.encode import encode

    encoded = [encode(batch) for batch in made(pipeline)]
    num_bytes = encoded[0].num_bytes
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        peer, _ = listening.accept()
    batches = itertools.cycle(each for each in encoded if each.num_bytes == num_bytes)
    with peer:
        peer.sendall(struct.pack("<Q", num_bytes))
        while asked := peer.recv(8, socket.MSG_WAITALL):
            for _ in range(*struct.unpack("<Q", asked)):
                for piece in next(batches).pieces:
                    peer.sendall(piece)


if __name__ == "__main__":
    main(sys.argv[1:])
