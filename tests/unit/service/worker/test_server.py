"""A worker's life, beside its streams."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from stoker.errors import SpecError
from stoker.memory.arena import Arena
from stoker_service.options import WorkerOptions
from stoker_service.worker.server import WorkerServer

NOBODY = "stoker://127.0.0.1:1"


def test_a_port_that_is_taken_is_an_error_that_names_it(start: Any) -> None:
    port = int(start().server.location.rpartition(":")[2])
    other = WorkerServer(WorkerOptions(NOBODY, port=port))
    with pytest.raises(SpecError, match=f"127.0.0.1:{port}"):
        other.start()
    assert other.wait() == 0


def test_without_shared_memory_it_works_by_socket(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(max_bytes: int) -> Arena:
        raise OSError("no memory of this kind")

    monkeypatch.setattr(Arena, "create", refuse)
    hands = start()
    assert hands.hello().arena_socket == ""
    assert hands.server.stats().bytes_in_arena == 0


def test_its_names_are_its_own(start: Any) -> None:
    one, other = start(), start()
    assert one.server.worker_id != other.server.worker_id
    assert one.server.location != other.server.location


def test_stop_may_come_again_and_before_the_start() -> None:
    server = WorkerServer(WorkerOptions(NOBODY))
    assert server.unready() == "the worker is starting"
    server.stop()
    server.stop()
    assert server.wait() == 0
    server.drain()


def test_malloc_is_told_in_processes_of_ours_only() -> None:
    program = "from stoker.memory.malloc import keep_memory; print(keep_memory())"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.strip() in {"True", "False"}
