"""What a worker has done and holds, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stoker.storage.cache import CacheStats
from stoker.storage.meter import StorageStats
from stoker_service.fleet_counts import NOTHING, FleetCounts

NO_STORAGE: Final = StorageStats()
NO_CACHE: Final = CacheStats()


@dataclass(frozen=True, slots=True)
class ProducerStats:
    """One pipeline: sums since its producer was made, the lanes that are open, and bytes of batches it holds."""

    pipeline: str
    lanes: tuple[int, ...] = ()
    num_streams: int = 0
    batches: int = 0
    rows: int = 0
    bad_samples: int = 0
    storage_s: float = 0.0
    decode_s: float = 0.0
    assemble_s: float = 0.0
    bytes_read: int = 0
    queued_bytes: int = 0


def added(before: ProducerStats, later: ProducerStats) -> ProducerStats:
    """Both of one pipeline as one: the sums added, the lanes joined."""
    return ProducerStats(
        pipeline=later.pipeline,
        lanes=tuple(sorted({*before.lanes, *later.lanes})),
        num_streams=before.num_streams + later.num_streams,
        batches=before.batches + later.batches,
        rows=before.rows + later.rows,
        bad_samples=before.bad_samples + later.bad_samples,
        storage_s=before.storage_s + later.storage_s,
        decode_s=before.decode_s + later.decode_s,
        assemble_s=before.assemble_s + later.assemble_s,
        bytes_read=before.bytes_read + later.bytes_read,
        queued_bytes=before.queued_bytes + later.queued_bytes,
    )


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """Sums since the worker started, and what there is at the moment.

    ``storage_s``: of reading threads; ``decode_s``, ``assemble_s``: CPU of decoding threads; ``send_s``: of streams,
    waiting for the network included. ``queued_bytes``: batches made, in the making or being sent. ``num_processes`` run
    for torch datasets, which have made ``dataset_batches``; ``payload_bytes``: datasets kept for them. ``storage``:
    what was asked of it; ``cache``: the worker's own, zeros if it has none; ``fleet``: bytes by where they came from.
    ``backend`` makes its samples, on ``device``.
    """

    storage_s: float
    decode_s: float
    assemble_s: float
    send_s: float
    queued_bytes: int
    num_streams: int
    num_lanes: int
    bad_samples: int
    batches: int
    rows: int
    bytes_sent: int
    bytes_in_arena: int
    num_processes: int
    dataset_batches: int
    payload_bytes: int
    producers: tuple[ProducerStats, ...]
    storage: StorageStats = NO_STORAGE
    cache: CacheStats = NO_CACHE
    fleet: FleetCounts = NOTHING
    backend: str = "cpu"
    device: str = "cpu"
