"""A store in front of real files that waits and fails as its profile says, in virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stoker.errors import ClosedError, NotFoundError, SpecError, TransientError
from stoker.storage.chaos.profile import Fault, draw, parse
from stoker.storage.chaos.store import ChaosStore, chaos_store
from stoker.storage.files import FileStore
from stoker.storage.retry import CutAnswerError, RetryingStore, RetryPolicy, ShortAnswerError, ThrottledError

BODY = bytes(range(256)) * 4


class Time:
    """A clock that goes on when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Folder:
    """Some files, and stores in front of them."""

    def __init__(self, path: Path) -> None:
        for index in range(5):
            (path / f"{index}.bin").write_bytes(BODY)
        self.root = f"file://{path}"
        self.url = f"{self.root}/0.bin"
        self.time = Time()

    def store(self, text: str, timeout_s: float = 1e9) -> ChaosStore:
        return ChaosStore(FileStore(), parse(text), clock=self.time.clock, sleep=self.time.sleep, timeout_s=timeout_s)

    def took_s(self, act: Callable[[], object]) -> float:
        begin_s = self.time.now_s
        act()
        return self.time.now_s - begin_s


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_without_chaos_it_is_the_store(folder: Folder) -> None:
    store = folder.store("none")
    assert store.read(folder.url, 3, 40) == BODY[3:40]
    assert store.head(folder.url).size_bytes == len(BODY)
    assert [found.url for found in store.list(f"{folder.root}/")] == [f"{folder.root}/{i}.bin" for i in range(5)]
    assert len(store.peek(f"{folder.root}/")) == 5
    store.write(f"{folder.root}/new", b"new")
    assert bytes(store.read(f"{folder.root}/new", 0, 3)) == b"new"
    assert folder.time.now_s == 100.0


def test_every_request_takes_the_latency_drawn_for_its_number(folder: Folder) -> None:
    store, profile = folder.store("gcs,seed=4"), parse("gcs,seed=4")
    acts: list[Callable[[], object]] = [
        lambda: store.read(folder.url, 0, 5),
        lambda: store.head(folder.url),
        lambda: store.peek(f"{folder.root}/"),
        lambda: store.write(folder.url, BODY),
        lambda: list(store.list(f"{folder.root}/")),
    ]
    for number, act in enumerate(acts):
        assert folder.took_s(act) == pytest.approx(draw(profile, number).latency_s)


def test_a_listing_is_a_request_a_page(folder: Folder) -> None:
    store, profile = folder.store("latency_ms=50,page=2"), parse("latency_ms=50,page=2")
    expected_s = sum(draw(profile, number).latency_s for number in range(3))
    assert folder.took_s(lambda: list(store.list(f"{folder.root}/"))) == pytest.approx(expected_s)


def test_a_body_comes_at_the_bandwidth(folder: Folder) -> None:
    store = folder.store("mb_per_s=0.001")
    assert folder.took_s(lambda: store.read(folder.url, 0, 500)) == pytest.approx(0.5)


def test_a_cut_body_ends_at_the_byte(folder: Folder) -> None:
    with pytest.raises(CutAnswerError) as got:
        folder.store("cut=1,at=7").read(folder.url, 10, 100, "")
    assert got.value.body == BODY[10:17]


def test_an_empty_answer_is_short(folder: Folder) -> None:
    with pytest.raises(ShortAnswerError, match="expected 90 bytes, found 0"):
        folder.store("empty=1").read(folder.url, 10, 100)


def test_a_stall_lasts_until_the_timeout(folder: Folder) -> None:
    def stalled(store: ChaosStore) -> None:
        with pytest.raises(TransientError, match="no complete answer in time"):
            store.read(folder.url, 0, 5)

    assert folder.took_s(lambda: stalled(folder.store("stall=1"))) == 30
    assert folder.took_s(lambda: stalled(folder.store("stall=1", timeout_s=2))) == 2
    assert folder.took_s(lambda: stalled(folder.store("latency_ms=9000", timeout_s=2))) == 2


def test_a_flipped_bit_is_right_the_second_time(folder: Folder) -> None:
    store = folder.store("flip=1,at=4")
    first, second = store.read(folder.url, 10, 20), store.read(folder.url, 10, 20)
    assert [index for index in range(10) if first[index] != BODY[10 + index]] == [4]
    assert first.readonly
    assert second == BODY[10:20]


def test_beyond_the_rate_it_throttles_each_folder(folder: Folder) -> None:
    store = folder.store("rate=2")
    for _ in range(2):
        store.read(folder.url, 0, 5)
    with pytest.raises(ThrottledError, match="HTTP 503"):
        store.read(folder.url, 0, 5)
    folder.time.sleep(1)
    store.read(folder.url, 0, 5)


def test_credentials_expire_once_in_each_period(folder: Folder) -> None:
    store = folder.store("expire_s=10")
    for _ in range(3):
        store.read(folder.url, 0, 5)
        folder.time.sleep(11)
        with pytest.raises(TransientError, match="credentials have expired"):
            store.read(folder.url, 0, 5)


@pytest.mark.parametrize("fault", ["cut", "stall", "empty", "fail"])
def test_what_has_no_body_fails_as_a_whole(folder: Folder, fault: str) -> None:
    store = folder.store(f"{fault}=1")
    with pytest.raises(TransientError):
        store.head(folder.url)
    with pytest.raises(TransientError):
        list(store.list(f"{folder.root}/"))


def test_errors_of_the_store_itself_pass(folder: Folder) -> None:
    with pytest.raises(NotFoundError):
        folder.store("gcs").read(f"{folder.root}/missing", 0, 5)


def test_the_same_seed_fails_the_same_requests(folder: Folder) -> None:
    def faults(seed: int) -> list[str]:
        store, found = folder.store(f"flaky,seed={seed}"), []
        for _ in range(100):
            try:
                found.append("right" if store.read(folder.url, 0, 900) == BODY[:900] else "flipped")
            except TransientError as error:
                found.append(str(error))
        return found

    assert faults(1) == faults(1) != faults(2)


def test_threads_get_a_fate_each(folder: Folder) -> None:
    text = "fail=0.3,seed=5"
    store = folder.store(text)

    def fails(_index: int) -> bool:
        try:
            store.read(folder.url, 0, 5)
        except TransientError:
            return True
        return False

    with ThreadPoolExecutor(8) as pool:
        num_failed = sum(pool.map(fails, range(200)))
    assert num_failed == sum(draw(parse(text), number).fault is Fault.FAIL for number in range(200))


@pytest.mark.parametrize("seed", range(5))
def test_retries_mend_whatever_happens(folder: Folder, seed: int) -> None:
    inner = folder.store(f"gcs,seed={seed},cut=0.1,empty=0.1,stall=0.1,fail=0.1,rate=20")
    chance = random.Random(seed)
    policy = RetryPolicy(max_attempts=50, deadline_s=1e6)
    store = RetryingStore(inner, policy, clock=folder.time.clock, sleep=folder.time.sleep, uniform=chance.random)
    for _ in range(100):
        start = chance.randrange(500)
        assert store.read(folder.url, start, start + 400) == BODY[start : start + 400]


def test_it_is_made_from_a_text(folder: Folder) -> None:
    def leave(_seconds: float) -> None:
        raise ClosedError("closed")

    with pytest.raises(ClosedError):
        chaos_store(FileStore(), "gcs", sleep=leave).read(folder.url, 0, 5)
    with pytest.raises(SpecError, match="did you mean 'throttled'"):
        chaos_store(FileStore(), "trottled")
