"""Object storage through a server that fails as it is told: everything heals, or says where and why, in time."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping

import pytest

from stoker.errors import ChangedError, NotFoundError, StorageError, TransientError
from stoker.storage import objects
from stoker.storage.meter import Meter
from stoker.storage.objects import ObjectStore
from stoker.storage.open import open_store
from stoker.storage.retry import Retry, RetryPolicy
from support.faulty_http import (
    Cut,
    EmptyOk,
    Fault,
    FaultyServer,
    Flip,
    NoRanges,
    Shifted,
    Short,
    Stall,
    Status,
    run_faulty_http,
    seeded_faults,
)

WHOLE = bytes(index * 7 % 251 for index in range(5000))
QUICK = RetryPolicy(max_attempts=4, attempt_s=5.0, deadline_s=30.0, first_wait_s=0.0)
IMPATIENT = RetryPolicy(max_attempts=2, attempt_s=0.3, deadline_s=2.0, first_wait_s=0.0)


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with run_faulty_http() as running:
        yield running


FAULTS: list[Fault] = [
    Cut(0),
    Cut(1),
    Cut(99),
    EmptyOk(),
    Short(1),
    Short(99),
    Shifted(1),
    NoRanges(),
    Status(503, "SlowDown", retry_after_s=1),
    Status(429),
    Status(500, "InternalError"),
    Status(408),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_every_fault_heals(server: FaultyServer, scheme: str, fault: Fault) -> None:
    """Pain 41."""
    url = server.put("bucket/x.tar", WHOLE, [fault, fault])
    options = {}
    if scheme == "s3":
        url, options = "s3://bucket/x.tar", {"endpoint": server.url, "anon": "true", "region": "us-east-1"}
    assert bytes(open_store(url, options, policy=QUICK).read(url, 1000, 1100)) == WHOLE[1000:1100]
    assert server.num_gets("bucket/x.tar") == 3


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_that_stays_is_an_error_with_url_and_range(server: FaultyServer, fault: Fault) -> None:
    url = server.put("x.tar", WHOLE, [fault] * 100)
    with pytest.raises(TransientError, match=rf"{url} bytes \[1000, 1100\): no good answer in 4 attempts"):
        open_store(url, policy=QUICK).read(url, 1000, 1100)
    assert server.num_gets("x.tar") == 4


def test_a_stalled_answer_heals_after_the_deadline_of_one_attempt(server: FaultyServer) -> None:
    url = server.put("x.tar", WHOLE, [Stall()])
    assert bytes(open_store(url, policy=IMPATIENT).read(url, 0, 5000)) == WHOLE


def test_an_answer_that_stays_stalled_is_an_error_in_time(server: FaultyServer) -> None:
    url = server.put("x.tar", WHOLE, [Stall()] * 100)
    begin_s = time.monotonic()
    with pytest.raises(TransientError, match=rf"{url} bytes \[0, 100\).*2 attempts.*in time"):
        open_store(url, policy=IMPATIENT).read(url, 0, 100)
    assert time.monotonic() - begin_s < IMPATIENT.deadline_s


def test_the_option_timeout_bounds_one_attempt(server: FaultyServer) -> None:
    url = server.put("x.tar", WHOLE, [Stall()])
    assert bytes(open_store(url, {"timeout": "200ms"}, policy=QUICK).read(url, 0, 5000)) == WHOLE


def test_a_flipped_byte_of_a_whole_object_heals(server: FaultyServer) -> None:
    """The ETag is the MD5 of the object."""
    url = server.put("x.tar", WHOLE, [Flip(3)])
    meter = Meter()
    assert bytes(open_store(url, policy=QUICK, meter=meter).read(url, 0, 5000)) == WHOLE
    assert (meter.stats().corrupt, meter.stats().retries, server.num_gets("x.tar")) == (1, 1, 2)


def test_an_object_that_stays_corrupt_in_other_ways_each_time_is_an_error(server: FaultyServer) -> None:
    url = server.put("x.tar", WHOLE, [Flip(at) for at in range(10)])
    with pytest.raises(TransientError, match=r"4 attempts.*MD5"):
        open_store(url, policy=QUICK).read(url, 0, 5000)


def test_an_etag_that_only_looks_like_an_md5_costs_one_read(server: FaultyServer) -> None:
    urls = [server.put(f"{number}.tar", WHOLE) for number in range(3)]
    for name in server.etags:
        server.etags[name] = f'"{name[1] * 32}"'
    store = open_store(server.url, policy=QUICK)
    assert [bytes(store.read(url, 0, 5000)) for url in urls] == [WHOLE] * 3
    assert [server.num_gets(f"{number}.tar") for number in range(3)] == [2, 1, 1]


@pytest.mark.parametrize("options, stop", [({"checksum": "off"}, 5000), ({}, 4999)])
def test_a_flipped_byte_of_a_range_is_not_seen_here(
    server: FaultyServer, options: Mapping[str, str], stop: int
) -> None:
    """Lengths are right; the checksum of the row in the manifest finds it, and reads again."""
    url = server.put("x.tar", WHOLE, [Flip(3)])
    store = open_store(url, options, policy=QUICK)
    assert bytes(store.read(url, 0, stop)) != WHOLE[:stop]
    assert bytes(store.read(url, 0, stop)) == WHOLE[:stop]


def test_a_replaced_object_is_an_error_that_names_both_versions(server: FaultyServer) -> None:
    url = server.put("x.tar", WHOLE)
    store = open_store(url, policy=QUICK)
    before = store.head(url).version
    assert bytes(store.read(url, 10, 20, before)) == WHOLE[10:20]
    server.put("x.tar", WHOLE[::-1])
    after = store.head(url).version
    with pytest.raises(ChangedError, match=rf"{url} was replaced: version {before} .*{after} is there.*Index it again"):
        store.read(url, 10, 20, before)
    assert server.num_gets("x.tar") == 2
    assert bytes(store.read(url, 10, 20)) == WHOLE[::-1][10:20]


def test_a_body_that_breaks_off_again_goes_on_where_it_broke(server: FaultyServer) -> None:
    """The first costs all of it; from then on this server's large bodies come in pieces."""
    whole = WHOLE * 400
    url = server.put("x.tar", whole, [Cut(900_000), Cut(900_000), Cut(500_000)])
    seen, meter = list[Retry](), Meter()
    store = open_store(url, policy=QUICK, on_retry=seen.append, meter=meter)
    assert bytes(store.read(url, 0, len(whole))) == whole
    kept = [retry.kept_bytes for retry in seen]
    assert kept[0] == 0
    assert 600_000 < kept[1] <= 900_000
    assert 200_000 < kept[2] <= 500_000
    ranges = [asked for method, _, asked in server.requests if method == "GET"]
    starts = [0, 0, kept[1], kept[1] + kept[2]]
    assert ranges == [f"bytes={start}-{len(whole) - 1}" for start in starts]
    assert (meter.stats().retries, meter.stats().resumed, meter.stats().requests) == (3, 2, 4)


def test_the_rest_of_a_replaced_object_is_not_joined_to_the_old_one(server: FaultyServer) -> None:
    whole = WHOLE * 400
    url = server.put("x.tar", whole, [Cut(900_000), Cut(900_000)])
    store = open_store(url, policy=QUICK, on_retry=lambda retry: replace_after(retry.attempt))

    def replace_after(attempt: int) -> None:
        if attempt == 2:
            server.put("x.tar", whole[::-1])

    assert bytes(store.read(url, 0, len(whole))) == whole[::-1]


def test_every_request_is_counted(server: FaultyServer) -> None:
    url = server.put("x.tar", WHOLE, [Status(503, "SlowDown"), Cut(3)])
    meter = Meter()
    store = open_store(url, policy=QUICK, meter=meter)
    store.head(url)
    store.read(url, 0, 100)
    stats = meter.stats()
    assert (stats.requests, stats.bytes, stats.retries, stats.throttled) == (4, 100, 2, 1)
    assert 0 < stats.latency_p50_s <= stats.latency_p99_s < 5.0


@pytest.mark.parametrize("seed", range(5))
def test_a_storm_of_faults_heals_and_is_reported(server: FaultyServer, seed: int) -> None:
    faults = seeded_faults(seed, 40)
    url = server.put("x.tar", WHOLE, faults)
    seen: list[Retry] = []
    store = open_store(url, policy=RetryPolicy(max_attempts=50, first_wait_s=0.0), on_retry=seen.append)
    parts = [bytes(store.read(url, start, start + 100)) for start in range(0, 5000, 100)]
    assert b"".join(parts) == WHOLE
    assert len(seen) == 40
    assert sum(retry.is_throttled for retry in seen) == sum(
        isinstance(fault, Status) and fault.status in (429, 503) for fault in faults
    )


def test_a_failed_part_of_a_large_read_is_read_again_alone(server: FaultyServer) -> None:
    whole = WHOLE * 4000  # 20 MB: three parts
    url = server.put("big.tar", whole, [Cut(1000)])
    assert bytes(open_store(url, policy=QUICK).read(url, 0, len(whole))) == whole
    assert server.num_gets("big.tar") == 4


def test_missing_objects_are_asked_for_once(server: FaultyServer) -> None:
    with pytest.raises(NotFoundError, match=f"{server.url}/no"):
        open_store(server.url, policy=QUICK).read(f"{server.url}/no", 0, 1)
    assert server.num_gets("no") == 1


def test_signed_addresses_keep_their_query_and_their_odd_path(server: FaultyServer) -> None:
    server.put("a/b c", WHOLE)
    url = f"{server.url}/a%2Fb%20c?sig=a%2Bb&x=1"
    store = open_store(url, policy=QUICK)
    assert bytes(store.read(url, 7, 9)) == WHOLE[7:9]
    assert store.head(url).size_bytes == 5000


@pytest.mark.parametrize("status", [403, 405, 501])
def test_where_head_is_refused_a_get_tells_the_size(server: FaultyServer, status: int) -> None:
    url = server.put("x.tar", WHOLE)
    server.head_status = status
    assert open_store(url, policy=QUICK).head(url).size_bytes == 5000
    server.put("x.tar", WHOLE, [Status(status)])
    with pytest.raises(StorageError, match=url):
        open_store(url, policy=QUICK).head(url)


def test_a_web_server_has_no_listing(server: FaultyServer) -> None:
    with pytest.raises(StorageError, match="cannot be listed"):
        list(open_store(server.url).list(server.url))


def test_the_bytes_are_those_of_obstore_not_a_copy(server: FaultyServer) -> None:
    url = server.put("x.tar", WHOLE)
    view = open_store(url, policy=QUICK).read(url, 0, 5000)
    assert type(view.obj).__module__.startswith("obstore")
    assert view.readonly


def test_a_read_releases_the_interpreter(server: FaultyServer) -> None:
    """The server's handler runs in this process: it could not answer otherwise. Four stalled reads wait together."""
    urls = [server.put(f"{number}.tar", WHOLE, [Stall()]) for number in range(4)]
    begin_s = time.monotonic()
    threads = [threading.Thread(target=open_store(url, policy=IMPATIENT).read, args=(url, 0, 100)) for url in urls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - begin_s < 3 * IMPATIENT.attempt_s


def test_stores_of_one_bucket_share_connections(server: FaultyServer) -> None:
    url = server.put("x.tar", WHOLE)
    first, second = ObjectStore("http", {}, 5.0), ObjectStore("http", {}, 5.0)
    first.read(url, 0, 1)
    num_clients = len(objects._clients)
    second.read(url, 0, 1)
    assert len(objects._clients) == num_clients


def test_clients_are_bounded(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_MAX_CLIENTS", 3)
    server.put("x.tar", WHOLE)
    store = ObjectStore("http", {}, 5.0)
    for number in range(10):
        assert bytes(store.read(f"{server.url}/x.tar?{number}", 0, 1)) == WHOLE[:1]
    assert len(objects._clients) <= 3


_FORKS = """
import json, os, sys
from stoker.storage.open import open_store
from stoker.storage.retry import RetryPolicy
url = sys.argv[1]
store = open_store(url, policy=RetryPolicy(max_attempts=1, attempt_s=5.0))
if sys.argv[2] == "used":
    store.read(url, 0, 1)
read_end, write_end = os.pipe()
if os.fork() == 0:
    try:
        outcome = bytes(store.read(url, 0, 3)).decode()
    except OSError as error:
        outcome = type(error).__name__ + ": " + str(error)
    os.write(write_end, json.dumps(outcome).encode())
    os._exit(0)
os.close(write_end)
print(os.read(read_end, 10000).decode())
os.wait()
"""


@pytest.mark.parametrize("state, expected", [("unused", "abc"), ("used", "StorageError: process .* was forked")])
def test_a_user_who_forks_gets_bytes_or_an_error_but_no_hang(server: FaultyServer, state: str, expected: str) -> None:
    """Pain 30: obstore's threads are not in the child; a read there would wait for ever."""
    url = server.put("x.tar", b"abcdef")
    done = subprocess.run(
        [sys.executable, "-c", _FORKS, url, state], capture_output=True, text=True, timeout=20, check=True
    )
    assert re.match(expected, json.loads(done.stdout))
