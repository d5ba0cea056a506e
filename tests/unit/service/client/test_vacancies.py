"""Where a process for a dataset is looked for, once the dispatcher's choice has none."""

from __future__ import annotations

from typing import Any

from stoker_proto.v1 import control_pb2 as wire
from stoker_service.client.owners import Owner
from stoker_service.client.vacancies import others


def worker(name: str, num_taken: int, *, most: int = 4, state: str = "alive", allows_code: bool = True) -> Any:
    return wire.WorkerStatus(
        worker=wire.Worker(worker_id=name, location=f"grpc://{name}", allows_code=allows_code, max_processes=most),
        state=state,
        beat=wire.WorkerBeatRequest(worker_id=name, num_processes=num_taken),
    )


def owner(name: str) -> Owner:
    return Owner(name, f"grpc://{name}")


def test_most_free_processes_first() -> None:
    workers = [worker("a", 2), worker("b", 1), worker("c", 1), worker("d", 0, most=2)]
    assert others(workers, []) == owner("b")
    assert others(workers, [owner("b")]) == owner("c")
    assert others(workers, [owner("b"), owner("c"), owner("d")]) == owner("a")
    assert others(workers, [owner(name) for name in "abcd"]) is None


def test_those_that_take_nothing_are_left_out() -> None:
    workers = [
        worker("full", 4),
        worker("over", 5),
        worker("old", 0, most=0),
        worker("drains", 0, state="draining"),
        worker("dead", 0, state="dead"),
        worker("careful", 0, allows_code=False),
    ]
    assert others(workers, []) is None
    assert others([*workers, worker("free", 3)], []) == owner("free")
