"""An arena is read by other processes, whatever ends them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import stoker
import stoker_proto
import stoker_service
from stoker.memory.arena import Arena
from stoker_service.transport import arena_host, arena_view
from stoker_service.transport.arena_host import ArenaHost, address_of
from stoker_service.transport.arena_view import ArenaView
from stoker_service.transport.host import host_id
from support import arena_process

SUM = str(arena_process.NUM_BYTES)


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena.create(1 << 20)
    yield made
    made.close()


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The arena process; dead and reaped at the end."""
    packages = (stoker, stoker_service, stoker_proto)
    path = os.pathsep.join(str(Path(next(iter(package.__path__))).parent) for package in packages)
    command = [sys.executable, arena_process.__file__, *arguments]
    environment = os.environ | {"PYTHONPATH": path}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=10)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def ask(process: subprocess.Popen[str]) -> str:
    """What the process sums up now."""
    assert process.stdin is not None
    process.stdin.write("again\n")
    process.stdin.flush()
    assert line_of(process) == SUM  # of its forked child
    return line_of(process)


def test_processes_map_the_same_memory_and_survive_each_other() -> None:
    with running("host") as host:
        name, offset = line_of(host).split()
        with running("view", name, offset) as first, running("view", name, offset) as second:
            assert line_of(first) == line_of(second) == SUM
            first.kill()
            assert first.wait(10) == -9
            assert ask(second) == SUM
            host.kill()
            assert host.wait(10) == -9
            assert ask(second) == SUM  # and no SIGBUS
            with pytest.raises(OSError):
                ArenaView.open(name, 1.0)
    assert not [path for path in Path("/dev/shm").iterdir() if "stoker" in path.name]


def test_a_reader_sees_what_is_written_after_it_mapped(arena: Arena) -> None:
    with ArenaHost(arena) as host:
        view = ArenaView.open(host.socket_name, 5.0)
    block = arena.allocate(1000)
    assert block is not None
    block[:] = 9
    offset = arena.offset_of(pa.py_buffer(block))
    assert offset is not None
    found = view.view(offset, 1000)
    assert (found == 9).all()
    assert not found.flags.writeable
    view.close()
    view.close()
    assert (found == 9).all()
    with pytest.raises(OSError, match="closed"):
        view.view(0, 1)


@pytest.mark.parametrize("offset, num_bytes", [(-1, 2), (0, 1 << 40), (1 << 40, 1), (5, -1)])
def test_bytes_outside_are_refused(arena: Arena, offset: int, num_bytes: int) -> None:
    with ArenaHost(arena) as host:
        view = ArenaView.open(host.socket_name, 5.0)
    with pytest.raises(OSError, match="outside"):
        view.view(offset, num_bytes)


def test_another_user_is_refused(
    arena: Arena, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with ArenaHost(arena) as host:
        monkeypatch.setattr(arena_host, "uid_of", lambda peer: 12345)
        with pytest.raises(PermissionError, match="refused"):
            ArenaView.open(host.socket_name, 5.0)
        monkeypatch.undo()
        assert ArenaView.open(host.socket_name, 5.0).view(0, 1) is not None
    assert "user 12345 asked" in caplog.text


def test_an_arena_of_another_user_is_not_mapped(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena_view, "uid_of", lambda peer: 12345)
    with ArenaHost(arena) as host, pytest.raises(PermissionError, match="belongs to user 12345"):
        ArenaView.open(host.socket_name, 5.0)


def test_a_host_that_is_closed_leaves_neither_thread_nor_name_nor_descriptor(arena: Arena) -> None:
    threads, fds = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
    host = ArenaHost(arena)
    host.close()
    host.close()
    assert threading.active_count() == threads
    assert len(list(Path("/proc/self/fd").iterdir())) == fds
    with pytest.raises(ConnectionRefusedError):
        ArenaView.open(host.socket_name, 1.0)


def test_a_host_that_does_not_answer_is_not_waited_for() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(address_of("stoker-test-silent"))
        silent.listen(1)
        with pytest.raises(TimeoutError):
            ArenaView.open("stoker-test-silent", 0.05)


def test_a_peer_that_goes_away_at_once_does_not_end_the_host(arena: Arena) -> None:
    with ArenaHost(arena) as host:
        for _ in range(3):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
                asking.connect(address_of(host.socket_name))
        assert np.all(ArenaView.open(host.socket_name, 5.0).view(0, 10) == 0)


def test_the_host_id_is_that_of_the_other_processes_here() -> None:
    path = str(Path(next(iter(stoker_service.__path__))).parent)
    code = "from stoker_service.transport.host import host_id; print(host_id())"
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert found.stdout.strip() == host_id()
    assert len(host_id()) == 16


def test_the_host_id_differs_for_other_users(monkeypatch: pytest.MonkeyPatch) -> None:
    before = host_id()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert host_id() != before
