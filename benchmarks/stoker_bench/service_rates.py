"""Measures images per second through a service on the same cores as local mode has."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

from stoker.dataloader import DEFAULT_PREFETCH_BYTES
from stoker_bench import machine, rounds
from stoker_bench.contender import Contender, Stream
from stoker_bench.peers import ours
from stoker_bench.service_processes import Service
from stoker_service.options import DEFAULT_MEMORY_BYTES

LOCAL = "local"
FLIGHT = "service-flight"
MEMORY = "service-memory"
TARGETS = {FLIGHT: 0.86, MEMORY: 0.96}
TITLES = {
    LOCAL: "Stoker, local mode",
    FLIGHT: "service, over Flight",
    MEMORY: "service, through shared memory",
}
WARM_UP_BATCHES = 4


def measure(
    pattern: str,
    batch_size: int,
    num_rounds: int,
    num_batches: int,
    tell: Callable[[int, str, float], None],
) -> dict[str, list[float]]:
    """Return images per second by contender and round.

    Each service is a dispatcher and one worker with a decoding thread per core, as local mode has.
    """
    with contextlib.ExitStack() as stack:
        contenders = [_local(pattern, batch_size, stack)]
        for name, arena in ((FLIGHT, False), (MEMORY, True)):
            service = stack.enter_context(Service(1, machine.num_cores(), arena=arena))
            contenders.append(_served(name, pattern, batch_size, service.url, stack))
        for contender in contenders:
            contender.images_per_s(WARM_UP_BATCHES)
        return rounds.measure(contenders, num_rounds, num_batches, tell)


def num_queued(batch_size: int) -> int:
    """Return more batches than worker and client hold ahead together, and than are made while these are taken."""
    held = (DEFAULT_PREFETCH_BYTES + DEFAULT_MEMORY_BYTES) / (batch_size * ours.ROW_BYTES)
    return math.ceil(1.5 * held) + 4


def _local(pattern: str, batch_size: int, stack: contextlib.ExitStack) -> Contender:
    stream = stack.enter_context(contextlib.closing(ours.Ours(pattern, batch_size)))
    return Stream(LOCAL, TITLES[LOCAL], stream.batches(), stream.num_queued)


def _served(name: str, pattern: str, batch_size: int, url: str, stack: contextlib.ExitStack) -> Contender:
    stream = stack.enter_context(contextlib.closing(ours.Ours(pattern, batch_size, service=url)))
    return Stream(name, TITLES[name], stream.batches(), num_queued(batch_size))
