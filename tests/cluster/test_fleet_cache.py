"""The workers' caches together read a data set from where it lies once, whatever is shuffled, dies or freezes."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import stoker
from stoker import ops
from stoker.formats.open import open_dataset
from stoker.formats.source import Source
from stoker.storage.store import ObjectRange
from stoker_proto.v1 import control_pb2
from stoker_service.members import Member
from stoker_service.worker.ownership import Owners, key_of
from support.cluster import Cluster, Worker, alive
from support.faulty_http import FaultyServer, run_faulty_http
from support.loading import load, tar_of
from support.streams import assert_same_stream, batches_on, digest, digests, local_stream

NUM_SHARDS, ROWS, ROW_BYTES, BATCH = 4, 60, 16 << 10, 8
EPOCH = NUM_SHARDS * ROWS // BATCH
MEMORY = ("--num-threads", "1", "--cache-ram-bytes", "64MiB")
FOLDER = ("--num-threads", "1", "--cache-bytes", "64MiB")
SLOW_BEAT = ("--beat-s", "2")
"""A worker that a busy machine keeps silent for a moment is not to count as dead: its ranges would be read again."""


@dataclass(frozen=True, slots=True)
class Data:
    """Shards at a web server, with the pipelines over them, and what was read of them."""

    server: FaultyServer = field(repr=False)
    source: Source
    chunks: list[ObjectRange] = field(repr=False)

    def pipeline(self, seed: int, **settings: object) -> stoker.Pipeline:
        named = {"batch_size": BATCH, "shuffle": True, "window": 4, "lanes": 6, "seed": seed, **settings}
        return stoker.Pipeline(self.source, [ops.DecodeNumpy("npy", to="array")], **named)  # type: ignore[arg-type]

    def begin(self) -> None:
        """Count from here on."""
        self.server.requests.clear()

    def times_read(self) -> Counter[tuple[str, int, int]]:
        """How often each chunk was read, whether by itself or with its neighbours. Anything else read is an error."""
        found: Counter[tuple[str, int, int]] = Counter()
        for method, path, asked in list(self.server.requests):
            if method == "GET":
                match = re.fullmatch(r"bytes=(\d+)-(\d+)", asked)
                assert match is not None, (path, asked)
                start, stop = int(match[1]), int(match[2]) + 1
                inside = [one for one in self.chunks if one.url.endswith(path) and start <= one.start < stop]
                assert sum(one.num_bytes for one in inside) == stop - start, (path, asked)
                found.update((one.url, one.start, one.stop) for one in inside)
        return found

    def assert_read_once(self) -> None:
        """Each chunk was read exactly once: origin bytes are 1.0 times the data set."""
        assert self.times_read() == Counter({(one.url, one.start, one.stop): 1 for one in self.chunks})


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Data]:
    chance = np.random.default_rng(5)
    with run_faulty_http() as server:
        for shard in range(NUM_SHARDS):
            rows = ((f"{shard}-{row:03d}", {"npy": _npy(chance)}) for row in range(ROWS))
            path = Path(tar_of(tmp_path / f"{shard}.tar", rows))
            server.put(f"data/{shard}.tar", path.read_bytes())
        url = f"{server.url}/data/{{0..{NUM_SHARDS - 1}}}.tar"
        source = stoker.tar(url, chunk_bytes=64 << 10, manifest=str(tmp_path / "index"))
        found = open_dataset(source)  # which writes the index, so that no worker reads all for that
        chunks = [one for index in range(len(found.chunks.num_rows)) for one in found.ranges(index)]
        yield Data(server, source, chunks)


def _npy(chance: np.random.Generator) -> bytes:
    out = io.BytesIO()
    np.save(out, chance.integers(0, 256, ROW_BYTES, np.uint8))
    return out.getvalue()


def wait_for_members(cluster: Cluster, workers: list[Worker]) -> None:
    """Wait until all these know that they, and no others, keep the fleet's ranges."""
    names = sorted(worker.name for worker in workers)

    def know(status: control_pb2.StatusResponse) -> bool:
        versions = {one.beat.members_version for one in status.workers if one.state == "alive"}
        return alive(status) == names and len(versions) == 1 and "" not in versions

    cluster.wait_for(f"{names} know one another", know)


def fleet_counts(cluster: Cluster) -> list[control_pb2.FleetCounts]:
    status = cluster.status()
    assert status is not None
    return [one.beat.fleet for one in status.workers if one.state == "alive"]


def expected(pipeline: stoker.Pipeline, num_steps: int, rank: int = 0, world_size: int = 1) -> tuple[str, ...]:
    return local_stream(pipeline.to_json(), num_steps, rank, world_size)


def test_three_epochs_of_three_trainers_read_the_data_once(data: Data, tmp_path: Path) -> None:
    """Issue 5: 4 workers, three epochs, two ranks and another job beside them: origin bytes = 1.0 x data set."""
    training, other = data.pipeline(1), data.pipeline(2, window=9)
    wanted = [(training, 0, 2), (training, 1, 2), (other, 0, 1)]
    local = [expected(one, 3 * EPOCH // size, rank, size) for one, rank, size in wanted]
    with Cluster(tmp_path / "cluster", 4, worker_options=MEMORY, dispatcher_options=SLOW_BEAT) as cluster:
        wait_for_members(cluster, cluster.workers)
        data.begin()

        def consume(job: tuple[stoker.Pipeline, int, int]) -> list[str]:
            pipeline, rank, size = job
            with load(pipeline, rank, size, service=cluster.url) as loader:
                return digests(batches_on(loader, 3 * EPOCH // size))

        with ThreadPoolExecutor(len(wanted)) as pool:
            for found, same in zip(pool.map(consume, wanted), local, strict=True):
                assert_same_stream(found, same)
        data.assert_read_once()
        cluster.wait_for("the workers tell", lambda _: sum(one.peer_bytes for one in fleet_counts(cluster)) > 0)
        assert sum(one.calls_refused + one.calls_late for one in fleet_counts(cluster)) == 0


@pytest.mark.parametrize("num_folders", [1, 3])
def test_disks_keep_what_memory_does_not(data: Data, tmp_path: Path, num_folders: int) -> None:
    """Workers that share a folder, as on one machine, or have one each, as on several; no budget in memory."""
    pipeline = data.pipeline(3)
    local = expected(pipeline, 2 * EPOCH)
    with Cluster(tmp_path / "cluster", worker_options=FOLDER, dispatcher_options=SLOW_BEAT) as cluster:
        for number in range(3):
            cluster.begin_worker("--cache-dir", str(tmp_path / f"disk-{number % num_folders}"))
        for worker in cluster.workers:
            worker.ready()
        wait_for_members(cluster, cluster.workers)
        data.begin()
        with load(pipeline, service=cluster.url) as loader:
            assert_same_stream(digests(batches_on(loader, 2 * EPOCH)), local)
        data.assert_read_once()


def test_kill_of_an_owner_costs_its_share_once_more(data: Data, tmp_path: Path) -> None:
    """Issue 5: loss of an owner is only slower: every batch comes, and what it did not keep is not read again."""
    pipeline = data.pipeline(4)
    local = expected(pipeline, 3 * EPOCH)
    with Cluster(tmp_path / "cluster", 3, worker_options=MEMORY) as cluster:
        wait_for_members(cluster, cluster.workers)
        fleet = Owners(Member(worker.name, "") for worker in cluster.workers)
        victim = cluster.workers[0]
        data.begin()
        found = []
        with load(pipeline, service=cluster.url, prefetch_bytes=256 << 10) as loader:
            for step, batch in enumerate(batches_on(loader, 3 * EPOCH)):
                found.append(digest(batch))
                if step == EPOCH + 3:
                    victim.kill()
        assert_same_stream(found, local)
        lost = {(one.url, one.start, one.stop) for one in data.chunks if _owner(fleet, one) == victim.name}
        times = data.times_read()
        assert 0 < len(lost) < len(data.chunks)
        assert all(number == 1 for chunk, number in times.items() if chunk not in lost)
        # Once before the kill; then by its new owner, or until the others know of one by who needs it: twice in each of
        # the two epochs that are left, if its lane moves.
        assert all(number <= 1 + 2 * 2 for chunk, number in times.items() if chunk in lost), times


def test_a_frozen_owner_is_passed_by(data: Data, tmp_path: Path) -> None:
    """SIGSTOP of an owner: who asks it reads by itself, and the stream goes on."""
    pipeline = data.pipeline(5)
    local = expected(pipeline, 3 * EPOCH)
    with Cluster(tmp_path / "cluster", 3, worker_options=MEMORY) as cluster:
        wait_for_members(cluster, cluster.workers)
        found = []
        with load(pipeline, service=cluster.url, prefetch_bytes=256 << 10) as loader:
            for step, batch in enumerate(batches_on(loader, 3 * EPOCH)):
                found.append(digest(batch))
                if step == EPOCH:
                    cluster.workers[1].freeze()
                if step == 2 * EPOCH:
                    cluster.workers[1].thaw()
        assert_same_stream(found, local)


def test_a_worker_without_a_cache_asks_and_keeps_nothing(data: Data, tmp_path: Path) -> None:
    """It is no member, and reads from those that are."""
    pipeline = data.pipeline(6)
    local = expected(pipeline, 2 * EPOCH)
    with Cluster(tmp_path / "cluster", 1, worker_options=MEMORY, dispatcher_options=SLOW_BEAT) as cluster:
        cluster.start_worker("--cache-ram-bytes", "0")
        cluster.wait_for_workers(cluster.workers)
        wait_for_members(cluster, cluster.workers)
        data.begin()
        with load(pipeline, service=cluster.url) as loader:
            assert_same_stream(digests(batches_on(loader, 2 * EPOCH)), local)
        data.assert_read_once()


def _owner(fleet: Owners, chunk: ObjectRange) -> str:
    member = fleet.of(key_of(chunk, by_name=False))
    assert member is not None
    return member.worker_id
