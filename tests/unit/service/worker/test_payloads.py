"""What a worker keeps of clients' datasets, and how many processes it lets them have."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from stoker.errors import ClosedError, ServiceError
from stoker.processes.payload import Payload
from stoker_service.worker.payloads import Payloads
from stoker_service.worker.processes import ENDED_JOBS, JobSums, Processes
from support.cluster import until

BEAT_S = 0.02


def made(num_bytes: int = 10) -> Payload:
    return Payload.of([bytes(num_bytes)], num_bytes)


def waits() -> bool:
    return True


def hold(payloads: Payloads, digest: str, num_bytes: int = 10) -> Payload:
    return payloads.hold(digest, lambda: made(num_bytes), BEAT_S, waits)


def test_it_is_received_by_the_first_and_held_by_all() -> None:
    payloads = Payloads(0)
    first = hold(payloads, "a")
    assert hold(payloads, "a") is first
    payloads.drop("a")
    assert payloads.num_bytes == 10
    payloads.drop("a")
    assert payloads.num_bytes == 0
    assert first.fd == -1


def test_those_that_nobody_holds_are_bounded_and_the_oldest_goes_first() -> None:
    payloads = Payloads(25)
    kept = [hold(payloads, digest) for digest in "abc"]
    assert payloads.num_bytes == 30
    for digest in "acb":
        payloads.drop(digest)
    assert payloads.num_bytes == 20
    assert [payload.fd >= 0 for payload in kept] == [False, True, True]
    assert hold(payloads, "b") is kept[1]
    payloads.close()
    assert [payload.fd >= 0 for payload in kept] == [False, True, False]


def test_others_wait_for_who_receives_it() -> None:
    payloads = Payloads(0)
    may_end, entered = threading.Event(), threading.Event()

    def slow() -> Payload:
        entered.set()
        may_end.wait(20)
        return made()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(payloads.hold, "a", slow, BEAT_S, waits)
        assert entered.wait(20)
        second = pool.submit(hold, payloads, "a")
        with pytest.raises(ClosedError, match="nobody waits"):
            payloads.hold("a", made, BEAT_S, lambda: False)
        may_end.set()
        assert second.result(20) is first.result(20)


def test_who_fails_to_receive_it_leaves_it_to_the_next() -> None:
    payloads = Payloads(0)

    def broken() -> Payload:
        raise ServiceError("cut")

    with pytest.raises(ServiceError):
        payloads.hold("a", broken, BEAT_S, waits)
    assert hold(payloads, "a").num_bytes == 10


def test_seats_are_counted() -> None:
    processes = Processes(2, Payloads(0))
    one, two = processes.reserve("j", 1), processes.reserve("k", 0)
    assert one is not None
    assert two is not None
    assert processes.reserve("j", 2) is None
    processes.on_made(one, 5)
    processes.on_made(two, 7)
    assert set(processes.sums()) == {JobSums("j", 5, (1,)), JobSums("k", 7, (0,))}
    assert processes.num_batches == 2
    processes.free(one)
    processes.free(one)
    assert processes.num_running == 1
    assert set(processes.sums()) == {JobSums("k", 7, (0,)), JobSums(ENDED_JOBS, 5)}
    assert processes.reserve("j", 2) is not None


def test_closing_waits_for_all_to_be_free_until_its_deadline() -> None:
    processes = Processes(2, Payloads(0))
    seat = processes.reserve("j", 0)
    assert seat is not None
    processes.close(time.monotonic() + BEAT_S)
    assert processes.reserve("j", 1) is None
    closing = threading.Thread(target=processes.close, args=(time.monotonic() + 20,))
    closing.start()
    processes.free(seat)
    until("it has noticed", lambda: not closing.is_alive(), 20)
    closing.join()
