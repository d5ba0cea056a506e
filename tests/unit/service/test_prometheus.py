"""The real Prometheus scrapes a dispatcher, a worker and a trainer, and knows each family of theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

import stoker
from stoker_service import metrics
from support import commands, loading, prometheus
from support.cluster import until
from support.prometheus import Server
from support.sample_stats import STATS, WORKER_STATS, snapshot

FAMILIES = {
    "dispatcher": {family.name for family in metrics.dispatcher_families(snapshot())},
    "worker": {family.name for family in metrics.worker_families(WORKER_STATS)},
    "trainer": {family.name for family in metrics.trainer_families(STATS)},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Prometheus that scrapes one process of each kind."""
    tools = prometheus.find()
    if isinstance(tools, prometheus.Missing):
        pytest.skip(tools.reason)
    folder = tmp_path_factory.mktemp("prometheus")
    source = stoker.tar(loading.numbered(folder / "shard.tar", 80))
    pipeline = stoker.Pipeline(source, ops=[stoker.ops.Label("cls")], batch_size=8)
    with ExitStack() as stack:
        dispatcher = stack.enter_context(commands.stoker("dispatcher", "--port=0", "--http-port=0"))
        address = dispatcher.line().split()[1]
        worker = stack.enter_context(commands.stoker("worker", f"--dispatcher={address}", "--http-port=0"))
        assert worker.line().startswith("worker ")
        loader = stack.enter_context(loading.load(pipeline, service=address))
        assert sum(1 for _ in loader) == len(loader)
        pages = metrics.serve_trainer(loader, 0)
        stack.callback(pages.close)
        targets = {"dispatcher": dispatcher.line(), "worker": worker.line(), "trainer": f"http {pages.url}"}
        hosts: dict[str, Sequence[str]] = {name: [line.removeprefix("http http://")] for name, line in targets.items()}
        yield stack.enter_context(prometheus.scraping(tools, folder, hosts))


@pytest.mark.parametrize("kind", sorted(FAMILIES))
def test_each_family_has_its_series(server: Server, kind: str) -> None:
    names = {f"{name}{{job='{kind}'}}" for name in FAMILIES[kind]}

    def missing() -> set[str]:
        found = {series["metric"]["__name__"] for series in server.ask(f"{{job='{kind}', __name__=~'stoker_.*'}}")}
        families = {name.removesuffix("_total").removesuffix("_sum").removesuffix("_count") for name in found}
        return FAMILIES[kind] - families

    until(f"a scrape of the {kind} with {names}", lambda: not missing())
    (target,) = [target for target in server.targets() if target["labels"]["job"] == kind]
    assert (target["health"], target["lastError"]) == ("up", "")


def test_values_arrive(server: Server) -> None:
    def value(query: str) -> float | None:
        series = server.ask(query)
        return float(series[0]["value"][1]) if len(series) == 1 else None

    for query, least in {
        'stoker_workers{state="alive"}': 1,
        'stoker_clients{job="dispatcher"}': 1,
        'stoker_lanes{job="dispatcher"}': 8,
        'stoker_rows_total{job="worker"}': 80,
        'stoker_rows_total{job="trainer"}': 80,
        'stoker_step_wait_seconds_count{job="trainer"}': 10,
    }.items():
        until(f"{query} is {least} or more", lambda: (value(query) or 0) >= least)  # noqa: B023 - called here only
    assert (value('stoker_stage_seconds_total{job="worker", stage="decode"}') or 0) > 0
    assert value('stoker_reassignments_total{job="dispatcher"}') is not None


def test_the_queries_of_the_help_texts_can_be_asked(server: Server) -> None:
    until("two scrapes", lambda: server.ask('count_over_time(stoker_rows_total{job="trainer"}[1m]) > 1'))
    for query in (
        "sum by (stage) (rate(stoker_stage_seconds_total[1m]))",
        "rate(stoker_step_wait_seconds_sum[1m]) / rate(stoker_step_wait_seconds_count[1m])",
        "stoker_wanted_workers - ignoring (state) stoker_workers{state='alive'}",
    ):
        assert server.ask(query), query
