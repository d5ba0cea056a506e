"""Two requests for one read: the first good answer wins, nothing waits for the other."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from stoker.errors import AccessError, NotFoundError, StorageError, TransientError
from stoker.storage.hedge import HedgePolicy
from stoker.storage.hedged import MAX_LOSERS, HedgedStore
from stoker.storage.meter import Meter
from stoker.storage.objects import ObjectStore
from stoker.storage.retry import ThrottledError
from stoker.storage.store import ObjectInfo
from support.faulty_http import Stall, run_faulty_http

EAGER = HedgePolicy(percentile=1.0, budget=1.0, least_median_s=0.0, least_reads=4)
"""A second request almost at once, as long as there were as many reads."""

SHY = HedgePolicy()
Body = Callable[[], bytes]


class Scripted:
    """Each read runs the next of ``calls``, in the thread that asks; then it answers b"ok"."""

    def __init__(self, calls: Sequence[Body] = ()) -> None:
        self.calls = list(calls)
        self.threads: list[threading.Thread] = []
        self.versions: list[str] = []
        self._lock = threading.Lock()

    def head(self, url: str) -> ObjectInfo:
        return ObjectInfo(url, 2, "v")

    def list(self, prefix: str, *, max_depth: int | None = None) -> Iterator[ObjectInfo]:
        yield ObjectInfo(f"{prefix}{max_depth}", 2, "v")

    def peek(self, folder: str) -> Sequence[str]:
        return [folder]

    def write(self, url: str, payload: bytes) -> None:
        self.written = payload

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        with self._lock:
            self.threads.append(threading.current_thread())
            self.versions.append(version)
            call = self.calls.pop(0) if self.calls else lambda: b"ok"
        return memoryview(call())


class Stuck:
    """A request that gets no answer before ``free``."""

    def __init__(self, outcome: bytes | Exception = b"late") -> None:
        self.begun = threading.Event()
        self.free = threading.Event()
        self._outcome = outcome

    def __call__(self) -> bytes:
        self.begun.set()
        assert self.free.wait(20)
        return self._raise_or_give()

    def _raise_or_give(self) -> bytes:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


def failing(error: Exception) -> Body:
    def fail() -> bytes:
        raise error

    return fail


def hedged(policy: HedgePolicy = EAGER, deadline_s: float = 20.0) -> tuple[HedgedStore, Scripted, Meter]:
    """A store that has seen enough reads to hedge, whose clock stands still, so that all of them took no time."""
    inner, meter = Scripted(), Meter()
    store = HedgedStore(inner, deadline_s=deadline_s, meter=meter, policy=policy, clock=lambda: 0.0)
    for _ in range(100):
        store.read("u", 0, 4)
    return store, inner, meter


def wait_until_gone(store: HedgedStore) -> None:
    for thread in threading.enumerate():
        if thread.name == "stoker-hedge":
            thread.join(20)
    assert store._num_losers == 0


def test_the_second_answer_wins_while_the_first_is_stuck() -> None:
    store, inner, meter = hedged()
    stuck = Stuck()
    inner.calls = [stuck, lambda: b"second"]
    assert bytes(store.read("u", 0, 6, "v7")) == b"second"
    assert inner.versions[-2:] == ["v7", "v7"]
    assert (meter.stats().hedges, meter.stats().hedges_won) == (1, 1)
    assert store._num_losers == 1
    stuck.free.set()
    wait_until_gone(store)


def test_the_first_answer_wins_while_the_second_is_stuck() -> None:
    store, inner, meter = hedged()
    first, second = Stuck(b"first"), Stuck()
    inner.calls = [first, second]

    def free() -> None:
        assert second.begun.wait(20)
        first.free.set()

    freeing = threading.Thread(target=free)
    freeing.start()
    assert bytes(store.read("u", 0, 5)) == b"first"
    freeing.join()
    assert (meter.stats().hedges, meter.stats().hedges_won) == (1, 0)
    second.free.set()
    wait_until_gone(store)


@pytest.mark.parametrize("good_is_second", [True, False])
def test_an_error_of_one_does_not_hide_the_good_answer_of_the_other(good_is_second: bool) -> None:
    store, inner, _ = hedged()
    bad = TransientError("cut")
    first, second = Stuck(bad if good_is_second else b"good"), Stuck(b"good" if good_is_second else bad)
    inner.calls = [first, second]
    earlier, later = (first, second) if good_is_second else (second, first)

    def free() -> None:
        assert second.begun.wait(20)
        earlier.free.set()
        later.free.set()

    freeing = threading.Thread(target=free)
    freeing.start()
    assert bytes(store.read("u", 0, 4)) == b"good"
    freeing.join()
    wait_until_gone(store)


def test_two_errors_are_one_error() -> None:
    store, inner, _ = hedged()
    first = Stuck(TransientError("cut"))
    inner.calls = [first, failing(TransientError("cut too"))]
    freeing = threading.Timer(0, first.free.set)
    freeing.start()
    with pytest.raises(TransientError, match="cut"):
        store.read("u", 0, 4)
    freeing.join()
    wait_until_gone(store)


@pytest.mark.parametrize("error", [NotFoundError("gone"), AccessError("no"), StorageError("odd")])
def test_what_cannot_heal_is_raised_although_the_other_is_stuck(error: Exception) -> None:
    store, inner, _ = hedged()
    stuck = Stuck()
    inner.calls = [stuck, failing(error)]
    with pytest.raises(type(error)) as caught:
        store.read("u", 0, 4)
    assert caught.value is error
    stuck.free.set()
    wait_until_gone(store)


def test_two_stuck_requests_end_at_the_deadline() -> None:
    store, inner, _ = hedged(deadline_s=0.0)
    stuck = [Stuck(), Stuck()]
    inner.calls = list(stuck)
    with pytest.raises(TransientError, match="no complete answer in time"):
        store.read("u", 0, 4)
    assert store._num_losers == 2
    for one in stuck:
        one.free.set()
    wait_until_gone(store)


def test_fast_stores_are_read_in_the_callers_thread() -> None:
    store, inner, meter = hedged(SHY)
    for _ in range(300):
        store.read("u", 0, 4)
    assert set(inner.threads) == {threading.current_thread()}
    assert meter.stats().hedges == 0


def test_a_throttled_store_is_not_asked_twice() -> None:
    store, inner, meter = hedged()
    inner.calls = [failing(ThrottledError("HTTP 503")), failing(ThrottledError("HTTP 503"))]
    with pytest.raises(ThrottledError):
        store.read("u", 0, 4)
    inner.calls.clear()
    num_hedges = meter.stats().hedges
    for _ in range(100):
        assert bytes(store.read("u", 0, 4)) == b"ok"
    assert meter.stats().hedges == num_hedges
    wait_until_gone(store)


def test_losers_in_flight_are_bounded() -> None:
    store, inner, _ = hedged()
    stuck = [Stuck() for _ in range(MAX_LOSERS)]
    for one in stuck:
        inner.calls = [one]
        store.read("u", 0, 4)
    assert store._num_losers == MAX_LOSERS
    store.read("u", 0, 4)
    assert inner.threads[-1] is threading.current_thread()
    for one in stuck:
        one.free.set()
    wait_until_gone(store)


def test_where_no_thread_can_be_had_the_caller_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    store, inner, _ = hedged()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert bytes(store.read("u", 0, 4)) == b"ok"
    assert inner.threads[-1] is threading.current_thread()
    assert store._num_losers == 0


def test_the_clock_of_a_slow_store_is_believed() -> None:
    inner = Scripted()
    now_s = iter(number * 0.05 for number in range(10_000))
    store = HedgedStore(inner, deadline_s=20.0, clock=lambda: next(now_s))
    for _ in range(100):
        store.read("u", 0, 4)
    assert any(thread is not threading.current_thread() for thread in inner.threads)


def test_everything_else_is_passed_on() -> None:
    store, inner, _ = hedged()
    store.write("u", b"x")
    assert (store.head("u").size_bytes, next(store.list("p", max_depth=1)).url, store.peek("f/")) == (
        2,
        "p1",
        ["f/"],
    )
    assert inner.written == b"x"


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_forked_while_a_read_is_hedged_is_not_stuck() -> None:
    store, inner, _ = hedged()
    stuck = Stuck()
    inner.calls = [stuck]
    store.read("u", 0, 4)
    with store._lock:
        pid = os.fork()
        if pid == 0:
            os._exit(7 if bytes(store.read("u", 0, 4)) == b"ok" and store._num_losers == 0 else 1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    stuck.free.set()
    wait_until_gone(store)


_LEAVES = """
import threading
from stoker.storage.hedge import HedgePolicy
from stoker.storage.hedged import HedgedStore

class Stalling:
    stalls = False

    def read(self, url, start, stop, version=""):
        if Stalling.stalls:
            Stalling.stalls = False
            threading.Event().wait()
        return memoryview(b"ok")

policy = HedgePolicy(percentile=1.0, budget=1.0, least_median_s=0.0, least_reads=4)
store = HedgedStore(Stalling(), deadline_s=20.0, policy=policy, clock=lambda: 0.0)
for _ in range(100):
    store.read("u", 0, 4)
Stalling.stalls = True
print(bytes(store.read("u", 0, 4)).decode(), store._num_losers)
"""


def test_a_request_that_lost_keeps_nobody_from_leaving() -> None:
    done = subprocess.run([sys.executable, "-c", _LEAVES], capture_output=True, text=True, timeout=20, check=True)
    assert (done.stdout, done.stderr) == ("ok 1\n", "")


def test_a_real_request_that_stalls_is_overtaken() -> None:
    with run_faulty_http() as server:
        url = server.put("x", b"0123456789")
        store = HedgedStore(ObjectStore("http", {}, 20.0), deadline_s=20.0, policy=EAGER)
        for _ in range(50):
            store.read(url, 0, 4)
        server.put("x", b"0123456789", [Stall()])
        begin_s = time.monotonic()
        assert bytes(store.read(url, 0, 4)) == b"0123"
        assert time.monotonic() - begin_s < 10
    wait_until_gone(store)  # the server has closed


def test_many_readers_get_their_own_answers() -> None:
    store, _, _ = hedged()
    wrong: list[bytes] = []

    def read() -> None:
        for _ in range(50):
            body = bytes(store.read("u", 0, 4))
            if body != b"ok":
                wrong.append(body)

    begin_s = time.monotonic()
    readers = [threading.Thread(target=read) for _ in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert time.monotonic() - begin_s < 60
    wait_until_gone(store)
