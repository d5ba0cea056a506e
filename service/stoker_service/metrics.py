"""What Prometheus is told, for each kind of process.

Every family is made at the moment of a scrape from a snapshot; nothing is counted here, and prometheus-client's global
registry is left alone. Labels come from closed sets: workers, jobs and ranks are told apart by what is scraped, and by
``stoker status``, never by a label. A family of two kinds of process means the same in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from stoker_service.http import Pages
from stoker_service.options import LOOPBACK

if TYPE_CHECKING:
    from stoker_service.dispatcher.snapshot import Snapshot
    from stoker_service.worker.stats import WorkerStats

Stage = Literal["storage", "decode", "assemble", "send", "receive", "copy", "trainer"]
STATES = ("alive", "draining", "dead")
SOURCES = ("local", "peer", "origin")
TIERS = ("ram", "disk")
PERCENTILES: Mapping[str, str] = {"50": "latency_p50_s", "95": "latency_p95_s", "99": "latency_p99_s"}

HELP: Mapping[str, str] = {
    # of several kinds
    "stoker_stage_seconds": (
        "Seconds spent in a stage of a batch's way, summed over threads: storage (chunks being read), decode, assemble "
        "(rows to a batch), send, receive, copy (into the trainer's memory), trainer (its own steps). rate() says how "
        "many threads a stage keeps busy; the one nearest to its number of threads is the limit. trainer near 1: the "
        "trainer itself is."
    ),
    "stoker_queued_bytes": (
        "Bytes of batches made or received and not taken yet. Near its bound, the consumer is the limit and all is "
        "well; near 0 while trainers wait, the making of batches is."
    ),
    "stoker_streams": (
        "Streams open at the workers: one for each client and lane. Far above clients x lanes: clients hang."
    ),
    "stoker_lanes": (
        "Lanes: on a dispatcher those of all pipelines, on a worker those some client has open there. No more workers "
        "than the dispatcher's number can be busy."
    ),
    "stoker_bad_samples": (
        "Samples that could not be used, whatever the policy made of them. Any growth deserves a look at the data."
    ),
    "stoker_retries": (
        "Reads that were tried again after the store failed. A steady rate costs time only; a jump is the store's "
        "trouble."
    ),
    "stoker_throttled": (
        "Reads that the store refused as too many. If it grows, ask the store for a higher rate or run fewer workers."
    ),
    "stoker_storage_requests": (
        "Requests sent to storage, of every kind, repeated and hedged ones too; what a bucket bills. Far above the "
        "chunks read: it fails, or the data lie in small files."
    ),
    "stoker_storage_hedges": (
        "Second requests sent because the first was slower than nearly all others. About a hundredth of the requests; "
        "more is not sent."
    ),
    "stoker_storage_latency_seconds": (
        "How long a good read from storage took since the start, by percentile. 99 far above 50: the store has slow "
        "moments, which read-ahead and hedging are there to hide."
    ),
    "stoker_source_bytes": (
        "Bytes of chunks by where they came from: local (this process's cache, memory or disk), peer (another "
        "worker's), origin (the bucket). From the second epoch on, origin is what does not fit the caches."
    ),
    "stoker_cache_held_bytes": "Bytes that the cache holds, by tier: ram of this process, disk of the whole folder.",
    "stoker_cache_evictions": "Chunks that the cache let go for others that are used sooner.",
    "stoker_cache_errors": (
        "Errors of the cache's own disk: full, read-only, broken. They cost speed only; the log has the first of each "
        "kind."
    ),
    "stoker_batches": "Batches: on a worker made, at a trainer taken. rate() is batches per second.",
    "stoker_rows": "Rows: on a worker made, at a trainer taken. rate() is samples per second.",
    "stoker_starved_ratio": (
        "Share of the time that the trainer waited for batches, 0 to 1: on the dispatcher of late and of the trainer "
        "that waits most, at a trainer since its start. Above 0.01, see which stage is busy."
    ),
    "stoker_dataset_processes": (
        "Processes that fetch the samples of clients' torch datasets: on the dispatcher those of all workers. At its "
        "limit (--max-processes of each worker), more loaders wait: start more workers."
    ),
    # of a dispatcher; gauges where clients come and go, as sums over them would fall
    "stoker_workers": (
        "Workers by state: alive, draining (its lanes move away), dead (three beats missed, forgotten after a while). "
        "Compare alive with stoker_wanted_workers."
    ),
    "stoker_wanted_workers": (
        "Workers that would keep the trainers from waiting, by their waits and the measured rates; 0 if nobody needs "
        "one. Above the alive ones for minutes: start more."
    ),
    "stoker_jobs": "Jobs that are not forgotten yet.",
    "stoker_clients": (
        "Training processes that take part, over all jobs. Fewer than the ranks you started: some are gone."
    ),
    "stoker_reassignments": (
        "Lanes given to another worker. Grows when workers come or go; a steady rate means that they die or that "
        "their measured speeds swing."
    ),
    "stoker_made_rows_per_second": "Rows that all workers made per second of late.",
    "stoker_taken_rows_per_second": (
        "Rows that all trainers took per second of late; above the made ones where jobs share batches."
    ),
    # of a worker
    "stoker_sent_bytes": "Bytes of batches sent over the network; those shared through memory are not in it.",
    "stoker_arena_bytes": "Bytes of shared memory in use for batches.",
    "stoker_dataset_batches": (
        "Batches of torch datasets, made by the processes here; not in stoker_batches. rate() is batches per second."
    ),
    "stoker_payload_bytes": (
        "Bytes of torch datasets, with their functions, that are kept here for processes that run or come."
    ),
    "stoker_worker_info": (
        "Always 1; the labels say which back-end makes this worker's samples, and where: cpu, or a GPU such as cuda:0."
    ),
    "stoker_gpu_used_bytes": (
        "Memory in use on the worker's GPU, by all that use it, trainers too; 0 without a GPU, or if the driver does "
        "not tell. At its limit: a smaller --device-bytes, or fewer workers on the GPU."
    ),
    # of a trainer
    "stoker_step_wait_seconds": (
        "What one step waited for its batch: rate(_sum) / rate(_count). Without the first batch after a start, see "
        "stoker_start_seconds. Well below the time of a step: nothing to gain."
    ),
    "stoker_start_seconds": "Seconds waited for the first batch after a start or a jump; says nothing of the rate.",
    "stoker_read_bytes": "Bytes read from storage by this process; 0 where a service reads.",
    "stoker_reconnects": "Streams opened again after they broke. Grows: workers die, or the network cuts connections.",
}


class TrainerNumbers(Protocol):
    """Whatever has a DataLoader's ``stats()``."""

    def stats(self) -> Mapping[str, Any]:
        """Return the counters by name."""


def page(families: Callable[[], Iterable[Metric]]) -> Callable[[], bytes]:
    """Return what makes the text of ``/metrics``: these families and the process's own CPU, memory and files."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(families))
    ProcessCollector(registry=registry)
    return lambda: generate_latest(registry)


def serve_trainer(loader: TrainerNumbers, port: int, *, host: str = LOOPBACK) -> Pages:
    """Serve a loader's counters as ``/metrics`` at ``host:port`` until the returned pages are closed.

    Stoker opens no port in a trainer unless it is asked to, which this is::

        pages = serve_trainer(loader, 9100 + rank)
        ...
        pages.close()

    ``loader`` is a DataLoader, with or without a service. Each rank has a loader, so each has its port; port 0 takes a
    free one, see ``Pages.url``. Raises SpecError if the port is taken.
    """
    return Pages(host, port, unready=lambda: None, metrics=page(lambda: trainer_families(loader.stats())))


def dispatcher_families(snapshot: Snapshot) -> Iterator[Metric]:
    """What a dispatcher knows of all."""
    workers = snapshot.workers
    beats = [worker.beat for worker in workers if worker.beat is not None and worker.state != "dead"]
    clients = [client for job in snapshot.jobs for client in job.clients]
    states = GaugeMetricFamily("stoker_workers", HELP["stoker_workers"], labels=["state"])
    for state in STATES:
        states.add_metric([state], sum(worker.state == state for worker in workers))
    yield states
    yield _gauge("stoker_wanted_workers", snapshot.wanted.num_workers)
    yield _gauge("stoker_jobs", len(snapshot.jobs))
    yield _gauge("stoker_clients", len(clients))
    yield _gauge("stoker_lanes", sum({job.job.key.pipeline: job.job.num_lanes for job in snapshot.jobs}.values()))
    yield _gauge("stoker_streams", sum(beat.num_streams for beat in beats))
    yield _gauge("stoker_queued_bytes", sum(beat.queued_bytes for beat in beats))
    yield _gauge("stoker_dataset_processes", sum(beat.num_processes for beat in beats))
    yield _gauge("stoker_made_rows_per_second", sum(worker.rows_per_s for worker in workers))
    yield _gauge("stoker_taken_rows_per_second", sum(client.rows_per_s for client in clients))
    yield _gauge("stoker_starved_ratio", max((client.starved_fraction for client in clients), default=0.0))
    yield _counter("stoker_reassignments", snapshot.num_reassigned)


def worker_families(numbers: WorkerStats, gpu_used_bytes: int = 0) -> Iterator[Metric]:
    """What a worker counts, and what is in use on its GPU."""
    yield _stages(
        {
            "storage": numbers.storage_s,
            "decode": numbers.decode_s,
            "assemble": numbers.assemble_s,
            "send": numbers.send_s,
        }
    )
    yield _gauge("stoker_queued_bytes", numbers.queued_bytes)
    yield _gauge("stoker_streams", numbers.num_streams)
    yield _gauge("stoker_lanes", numbers.num_lanes)
    yield _gauge("stoker_arena_bytes", numbers.bytes_in_arena)
    yield _gauge("stoker_dataset_processes", numbers.num_processes)
    yield _gauge("stoker_payload_bytes", numbers.payload_bytes)
    yield _counter("stoker_dataset_batches", numbers.dataset_batches)
    yield _counter("stoker_batches", numbers.batches)
    yield _counter("stoker_rows", numbers.rows)
    yield _counter("stoker_sent_bytes", numbers.bytes_sent)
    yield _counter("stoker_bad_samples", numbers.bad_samples)
    yield _gauge("stoker_gpu_used_bytes", gpu_used_bytes)
    info = GaugeMetricFamily("stoker_worker_info", HELP["stoker_worker_info"], labels=["backend", "device"])
    info.add_metric([numbers.backend, numbers.device], 1)
    yield info
    fleet = numbers.fleet
    yield from _storage(numbers.storage.as_dict())
    yield from _cache(
        numbers.cache.as_dict(), local=fleet.local_bytes, peer=fleet.peer_bytes, origin=fleet.origin_bytes
    )


def trainer_families(stats: Mapping[str, Any]) -> Iterator[Metric]:
    """What a DataLoader counts; what it does not know, as it has no service or no need, is 0."""
    waited_s = sum(stats.get(name, 0.0) for name in ("wait_read_s", "wait_decode_s", "wait_network_s"))
    between_s = stats.get("between_s", 0.0)
    yield _stages(
        {
            "storage": stats.get("read_s", 0.0),
            "decode": stats.get("decode_s", 0.0),
            "receive": stats.get("receive_s", 0.0),
            "copy": stats.get("copy_s", 0.0),
            "trainer": between_s,
        }
    )
    yield SummaryMetricFamily(
        "stoker_step_wait_seconds",
        HELP["stoker_step_wait_seconds"],
        count_value=stats.get("batches", 0),
        sum_value=waited_s,
    )
    yield _gauge("stoker_starved_ratio", waited_s / (waited_s + between_s) if waited_s else 0.0)
    yield _gauge("stoker_queued_bytes", stats.get("queued_bytes", 0))
    yield _counter("stoker_start_seconds", stats.get("start_s", 0.0))
    yield _counter("stoker_batches", stats.get("batches", 0))
    yield _counter("stoker_rows", stats.get("samples", 0))
    yield _counter("stoker_read_bytes", stats.get("bytes_read", 0))
    yield _counter("stoker_bad_samples", stats.get("bad_samples", 0))
    storage, cache = stats.get("storage", {}), stats.get("cache", {})
    yield from _storage(storage)
    local = cache.get("bytes_ram", 0) + cache.get("bytes_disk", 0)
    yield from _cache(cache, local=local, peer=0, origin=cache.get("bytes_missed", storage.get("bytes", 0)))
    yield _counter("stoker_reconnects", stats.get("reconnects", 0))
    yield _counter("stoker_reassignments", stats.get("moves", 0))


class _Snapshot(Collector):
    """Asks for the families at each scrape."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families()


def _stages(seconds: Mapping[Stage, float]) -> Metric:
    family = CounterMetricFamily("stoker_stage_seconds", HELP["stoker_stage_seconds"], labels=["stage"])
    for stage, value in seconds.items():
        family.add_metric([stage], value)
    return family


def _storage(stats: Mapping[str, Any]) -> Iterator[Metric]:
    """What :class:`stoker.storage.meter.StorageStats` says."""
    yield _counter("stoker_storage_requests", stats.get("requests", 0))
    yield _counter("stoker_storage_hedges", stats.get("hedges", 0))
    yield _counter("stoker_retries", stats.get("retries", 0))
    yield _counter("stoker_throttled", stats.get("throttled", 0))
    name = "stoker_storage_latency_seconds"
    family = GaugeMetricFamily(name, HELP[name], labels=["percentile"])
    for percentile, key in PERCENTILES.items():
        family.add_metric([percentile], stats.get(key, 0.0))
    yield family


def _cache(stats: Mapping[str, Any], **source_bytes: float) -> Iterator[Metric]:
    """What :class:`stoker.storage.cache.CacheStats` says, and where bytes came from."""
    sources = CounterMetricFamily("stoker_source_bytes", HELP["stoker_source_bytes"], labels=["source"])
    for source, num_bytes in source_bytes.items():
        sources.add_metric([source], num_bytes)
    yield sources
    held = GaugeMetricFamily("stoker_cache_held_bytes", HELP["stoker_cache_held_bytes"], labels=["tier"])
    for tier in TIERS:
        held.add_metric([tier], stats.get(f"held_{tier}_bytes", 0))
    yield held
    yield _counter("stoker_cache_evictions", stats.get("evicted", 0))
    yield _counter("stoker_cache_errors", stats.get("errors", 0))


def _gauge(name: str, value: float) -> Metric:
    return GaugeMetricFamily(name, HELP[name], value=value)


def _counter(name: str, value: float) -> Metric:
    return CounterMetricFamily(name, HELP[name], value=value)
