"""The engine's defaults for the machine and the plan at hand."""

from __future__ import annotations

import math
import os

from stoker.engine.feed import Feed
from stoker.formats.source import Files, Source
from stoker.storage.concurrency import Concurrency
from stoker.storage.urls import scheme_of

_MIN_READ_BYTES = 256 << 20
_MAX_READ_BYTES = 4 << 30


def num_cores() -> int:
    """Cores this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def default_concurrency(source: Source) -> Concurrency:
    """Where to begin with reads in flight; measured throughput decides from there.

    A local file that the system has cached is read in a fraction of a millisecond, and each thread more that does so
    competes with the decoders for the GIL: 8 cost 7 % of the rate that 2 gave.
    """
    first = source.url if isinstance(source, Files) else source.patterns[0]
    return Concurrency(in_flight=2) if scheme_of(first) == "file" else Concurrency()


def default_read_bytes(feed: Feed) -> int:
    """Room for the open windows of all lanes of this rank, half as much again to read ahead; 256 MiB to 4 GiB.

    A rank of ``W`` reads ``L / gcd(W, L)`` of the ``L`` lanes, and each has one window of chunks open at a time.
    """
    sizes = feed.chunks.size_bytes
    if not len(sizes):
        return _MIN_READ_BYTES
    lanes = feed.pipeline.lanes // math.gcd(feed.deal.rank.world_size, feed.pipeline.lanes)
    window = feed.pipeline.window if feed.pipeline.shuffle is True else 1
    open_bytes = lanes * window * float(sizes.mean())
    return int(min(max(1.5 * open_bytes, _MIN_READ_BYTES), _MAX_READ_BYTES))
