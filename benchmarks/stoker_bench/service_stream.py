"""Measures one stream of batches that are ready: the service's beside a bare TCP socket that sends the same bytes."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import stoker
from stoker.dataloader import DEFAULT_PREFETCH_BYTES
from stoker_bench import quiet, rates, rounds
from stoker_bench.rounds import Spread

SOCKET = "socket"
FLIGHT = "service-flight"
MEMORY = "service-memory"
TARGETS = {"ratio": 0.5, "cpu_s_per_gb": 0.65}  # of Flight
TITLES = {
    SOCKET: "bare TCP socket, into a warm buffer",
    FLIGHT: "service, one lane, over Flight",
    MEMORY: "service, one lane, through shared memory",
}
GB = 1e9


@dataclass(frozen=True, slots=True)
class Received:
    """What one measurement moved; ``cpu_s`` is of this process, all threads, user and system."""

    num_bytes: int
    elapsed_s: float
    cpu_s: float

    @property
    def gb_per_s(self) -> float:
        return self.num_bytes / self.elapsed_s / GB

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_s / (self.num_bytes / GB)


class Link(Protocol):
    """A way for ready batches into this process."""

    def empty(self) -> None:
        """Receive what was sent ahead; outside the clock."""
        ...

    def receive(self, num_batches: int) -> int:
        """Receive so many; return their bytes."""
        ...


class SocketLink:
    """Bytes of a batch, again and again, over TCP into one buffer whose pages are there."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60.0)
        (num_bytes,) = struct.unpack("<Q", self._exactly(8))
        self._into = memoryview(bytearray(b"1") * num_bytes)

    def empty(self) -> None:
        """Nothing is sent before it is asked for."""

    def receive(self, num_batches: int) -> int:
        self._socket.sendall(struct.pack("<Q", num_batches))
        for _ in range(num_batches):
            num_here = 0
            while num_here < len(self._into):
                num_here += _came(self._socket.recv_into(self._into[num_here:]))
        return num_batches * len(self._into)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _exactly(self, num_bytes: int) -> bytes:
        found = b""
        while len(found) < num_bytes:
            found += self._socket.recv(num_bytes - len(found))
        return found


class ServiceLink:
    """A loader whose worker has all batches made; Arrow batches out, so that nothing but the stream is measured."""

    def __init__(self, url: str, pipeline: stoker.Pipeline) -> None:
        self._loader = stoker.DataLoader(pipeline, service=url, output="arrow")
        self._batches: Iterator[Any] = rates.endless(self._loader)

    def empty(self) -> None:
        """Take more batches than the loader asks for ahead."""
        num_bytes = 0
        while num_bytes < 1.5 * DEFAULT_PREFETCH_BYTES:
            num_bytes += self.receive(1)

    def receive(self, num_batches: int) -> int:
        return sum(next(self._batches).nbytes for _ in range(num_batches))

    def close(self) -> None:
        """Close the loader."""
        self._loader.close()


def measure(
    links: Mapping[str, Link],
    num_rounds: int,
    num_batches: int,
    tell: Callable[[int, str, Received], None],
    settle: Callable[[], None] = quiet.wait,
) -> dict[str, list[Received]]:
    """Return what each link did in each round; the order of links changes from round to round."""
    found: dict[str, list[Received]] = {name: [] for name in links}
    for round_index in range(num_rounds):
        for name in rounds.rotated(list(links), round_index):
            settle()
            received = timed(links[name], num_batches)
            found[name].append(received)
            tell(round_index, name, received)
    return found


def timed(link: Link, num_batches: int) -> Received:
    """Measure one link, the clock running from a moment when nothing has come ahead."""
    link.empty()
    cpu_s, begun_s = time.process_time(), time.perf_counter()
    num_bytes = link.receive(num_batches)
    return Received(num_bytes, time.perf_counter() - begun_s, time.process_time() - cpu_s)


def summary(found: Mapping[str, Sequence[Received]]) -> dict[str, Any]:
    """Return rates, CPU time and the ratios of the service's to the socket's, as JSON values."""
    speeds = {name: [each.gb_per_s for each in received] for name, received in found.items()}
    costs = {name: [each.cpu_s_per_gb for each in received] for name, received in found.items()}
    links = {
        name: {"gb_per_s": asdict(Spread.of(speeds[name])), "cpu_s_per_gb": asdict(Spread.of(costs[name]))}
        for name in found
    }
    ratios = {name: asdict(ratio) for name, ratio in rounds.against(speeds, SOCKET).items()}
    return {"links": links, "ratios": ratios, "targets": TARGETS}


def _came(num_bytes: int) -> int:
    if not num_bytes:
        raise ConnectionError("the sender hung up in the middle of a batch")
    return num_bytes
