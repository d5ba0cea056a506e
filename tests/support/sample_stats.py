"""What a dispatcher, a worker and a trainer might have counted."""

from __future__ import annotations

from typing import Any

from stoker.storage.cache import CacheStats
from stoker.storage.meter import StorageStats
from stoker_service.dispatcher.events import ClientBeat, WorkerBeat
from stoker_service.dispatcher.model import Assignment, ClientId, Job, JobKey, PipelineId, Worker, WorkerId
from stoker_service.dispatcher.scale import Wanted
from stoker_service.dispatcher.snapshot import ClientView, JobView, Snapshot, WorkerView
from stoker_service.fleet_counts import FleetCounts
from stoker_service.worker.stats import WorkerStats

WORKER_STATS = WorkerStats(
    storage_s=1.0,
    decode_s=2.0,
    assemble_s=3.0,
    send_s=4.0,
    queued_bytes=5,
    num_streams=6,
    num_lanes=7,
    bad_samples=10,
    batches=11,
    rows=12,
    bytes_sent=13,
    bytes_in_arena=14,
    num_processes=15,
    dataset_batches=16,
    payload_bytes=17,
    producers=(),
    storage=StorageStats(requests=18, bytes=19, retries=8, throttled=9, hedges=20),
    cache=CacheStats(held_ram_bytes=21, held_disk_bytes=22, evicted=23, errors=24),
    fleet=FleetCounts(local_bytes=25, peer_bytes=26, origin_bytes=27),
    backend="dali",
    device="cuda:1",
)

STATS = {
    "batches": 10,
    "samples": 640,
    "bad_samples": 1,
    "bytes_read": 1 << 20,
    "read_s": 1.0,
    "decode_s": 2.0,
    "start_s": 0.75,
    "wait_read_s": 0.5,
    "wait_decode_s": 1.0,
    "wait_network_s": 1.5,
    "between_s": 9.0,
    "receive_s": 3.0,
    "copy_s": 4.0,
    "storage": {"requests": 8, "bytes": 900, "retries": 5, "throttled": 6, "hedges": 1, "latency_p99_s": 0.25},
    "cache": {"bytes_ram": 100, "bytes_disk": 200, "bytes_missed": 800, "held_disk_bytes": 700, "evicted": 4},
    "reconnects": 2,
    "moves": 3,
    "queued_bytes": 77,
}


def snapshot() -> Snapshot:
    """Two workers that live and one that is dead; two jobs of one pipeline, one of which has lost its clients."""
    key, other = (JobKey(PipelineId("f" * 32), name) for name in ("train", "eval"))
    return Snapshot(
        up_s=10.0,
        workers=(
            _worker("a", "alive", num_streams=3, queued_bytes=1000, num_processes=2),
            _worker("b", "alive", num_streams=4, queued_bytes=500, num_processes=3),
            _worker("c", "dead", num_streams=9, queued_bytes=9, num_processes=9),
        ),
        jobs=(
            JobView(Job(key, 8, 2), (_client(key, "x", 0.25), _client(key, "y", 0.5)), Assignment("v")),
            JobView(Job(other, 8, 1), (), Assignment("v")),
        ),
        wanted=Wanted(4, "they wait"),
        num_reassigned=7,
    )


def _worker(name: str, state: Any, *, num_streams: int, queued_bytes: int, num_processes: int) -> WorkerView:
    beat = WorkerBeat(WorkerId(name), num_streams=num_streams, queued_bytes=queued_bytes, num_processes=num_processes)
    return WorkerView(Worker(WorkerId(name), "grpc://h:1"), state, 0.1, 4, 100.0, beat)


def _client(key: JobKey, name: str, starved_fraction: float) -> ClientView:
    beat = ClientBeat(key, ClientId(name))
    return ClientView(ClientId(name), 0, "h", 0.1, 50.0, starved_fraction, beat)
