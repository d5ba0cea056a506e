"""What Prometheus is told: names, help texts, values, labels."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterable
from typing import Any, get_args

import pytest
from prometheus_client import REGISTRY, Metric

from stoker_service import metrics
from support import prometheus
from support.sample_stats import STATS, WORKER_STATS, snapshot


def families_of(kind: str) -> list[Metric]:
    match kind:
        case "dispatcher":
            return list(metrics.dispatcher_families(snapshot()))
        case "worker":
            return list(metrics.worker_families(WORKER_STATS))
        case _:
            return list(metrics.trainer_families(STATS))


def text_of(kind: str) -> str:
    return metrics.page(lambda: families_of(kind))().decode()


def values(families: Iterable[Metric]) -> dict[str, float]:
    return {
        sample.name + "".join(f"{{{name}={value}}}" for name, value in sample.labels.items()): sample.value
        for family in families
        for sample in family.samples
    }


KINDS = pytest.mark.parametrize("kind", ["dispatcher", "worker", "trainer"])


@KINDS
def test_names_say_noun_and_unit_and_help_says_how_to_read_them(kind: str) -> None:
    for family in families_of(kind):
        assert re.fullmatch(r"stoker(_[a-z]+)+", family.name)
        assert family.documentation == metrics.HELP[family.name]
        assert len(family.documentation) > 30
        assert family.documentation.endswith(".")


def test_every_help_text_belongs_to_a_family() -> None:
    made = {family.name for kind in ("dispatcher", "worker", "trainer") for family in families_of(kind)}
    assert made == set(metrics.HELP)


@KINDS
def test_labels_come_from_closed_sets(kind: str) -> None:
    closed = {
        "stage": set(get_args(metrics.Stage)),
        "state": {"alive", "draining", "dead"},
        "source": {"local", "peer", "origin"},
        "tier": {"ram", "disk"},
        "percentile": {"50", "95", "99"},
        "backend": {"cpu", "dali"},
        "device": {"cpu", "cuda:0", "cuda:1"},
    }
    for family in families_of(kind):
        for sample in family.samples:
            for label, value in sample.labels.items():
                assert value in closed[label], sample


@KINDS
def test_the_page_has_the_process_too_and_the_global_registry_nothing_of_ours(kind: str) -> None:
    text = text_of(kind)
    assert "process_cpu_seconds_total" in text
    assert not [name for name in REGISTRY._names_to_collectors if name.startswith("stoker")]


@KINDS
def test_promtool_finds_no_fault(kind: str) -> None:
    tools = prometheus.find()
    if isinstance(tools, prometheus.Missing):
        pytest.skip(tools.reason)
    assert prometheus.check_metrics(tools, text_of(kind)) == ""


def test_a_dispatcher_sums_over_all() -> None:
    assert values(metrics.dispatcher_families(snapshot())) == {
        "stoker_workers{state=alive}": 2,
        "stoker_workers{state=draining}": 0,
        "stoker_workers{state=dead}": 1,
        "stoker_wanted_workers": 4,
        "stoker_jobs": 2,
        "stoker_clients": 2,
        "stoker_lanes": 8,  # both jobs have one pipeline
        "stoker_streams": 7,  # the dead one's are gone
        "stoker_queued_bytes": 1500,
        "stoker_dataset_processes": 5,
        "stoker_made_rows_per_second": 300.0,
        "stoker_taken_rows_per_second": 100.0,
        "stoker_starved_ratio": 0.5,
        "stoker_reassignments_total": 7,
    }


def test_a_worker_tells_its_stages() -> None:
    found = values(metrics.worker_families(WORKER_STATS))
    stages = {name: value for name, value in found.items() if "stage=" in name}
    assert stages == {
        "stoker_stage_seconds_total{stage=storage}": WORKER_STATS.storage_s,
        "stoker_stage_seconds_total{stage=decode}": WORKER_STATS.decode_s,
        "stoker_stage_seconds_total{stage=assemble}": WORKER_STATS.assemble_s,
        "stoker_stage_seconds_total{stage=send}": WORKER_STATS.send_s,
    }
    assert found["stoker_bad_samples_total"] == WORKER_STATS.bad_samples
    assert found["stoker_arena_bytes"] == WORKER_STATS.bytes_in_arena
    assert found["stoker_dataset_processes"] == WORKER_STATS.num_processes
    assert found["stoker_payload_bytes"] == WORKER_STATS.payload_bytes
    assert found["stoker_dataset_batches_total"] == WORKER_STATS.dataset_batches
    assert found["stoker_storage_requests_total"] == WORKER_STATS.storage.requests
    assert found["stoker_retries_total"] == WORKER_STATS.storage.retries
    assert found["stoker_cache_held_bytes{tier=disk}"] == WORKER_STATS.cache.held_disk_bytes
    assert found["stoker_source_bytes_total{source=peer}"] == WORKER_STATS.fleet.peer_bytes
    assert found["stoker_source_bytes_total{source=origin}"] == WORKER_STATS.fleet.origin_bytes
    assert found["stoker_worker_info{backend=dali}{device=cuda:1}"] == 1
    assert found["stoker_gpu_used_bytes"] == 0
    assert values(metrics.worker_families(WORKER_STATS, 1 << 30))["stoker_gpu_used_bytes"] == 1 << 30


def test_a_trainer_tells_what_a_step_waits_and_what_part_of_the_time() -> None:
    found = values(metrics.trainer_families(STATS))
    assert found["stoker_step_wait_seconds_sum"] == 3.0  # without the start's
    assert found["stoker_step_wait_seconds_count"] == 10
    assert found["stoker_starved_ratio"] == 3.0 / 12.0
    assert found["stoker_stage_seconds_total{stage=trainer}"] == 9.0
    assert found["stoker_stage_seconds_total{stage=receive}"] == 3.0
    assert found["stoker_reconnects_total"] == 2
    assert found["stoker_storage_latency_seconds{percentile=99}"] == 0.25
    assert found["stoker_source_bytes_total{source=local}"] == 300
    assert found["stoker_source_bytes_total{source=origin}"] == 800


def test_a_trainer_that_has_done_nothing_yet_tells_zeros() -> None:
    assert set(values(metrics.trainer_families({})).values()) == {0}


def test_a_trainer_serves_its_loader_where_it_is_asked_to() -> None:
    class Loader:
        def stats(self) -> dict[str, Any]:
            return STATS

    pages = metrics.serve_trainer(Loader(), 0)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{pages.url}/metrics", timeout=5) as answer:
        assert b"\nstoker_step_wait_seconds_count 10.0\n" in answer.read()
    pages.close()
