"""The loader is a guest: it goes when told to and changes nothing in the house (DESIGN §9; pains 26, 30)."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import stoker
from support import programs
from support.faulty_http import Stall, run_faulty_http
from support.loading import load, numbered
from support.servers import Bucket
from support.shards import make_shards, tar_bytes


@pytest.fixture
def shards(tmp_path: Path) -> str:
    make_shards(tmp_path, (20, 20, 20), images=False)
    return f"{tmp_path}/shard-*.tar"


@pytest.mark.parametrize(
    "name, status",
    [
        ("break_out", 0),
        ("iterator_kept", 0),
        ("never_iterated", 0),
        ("forgotten", 0),
        ("stuck", 0),
        ("raise_in_loop", 1),
    ],
)
def test_a_program_ends_in_time(shards: str, name: str, status: int) -> None:
    """Pain 26: a program with a live loader ends within 2 s of its last line, with its own exit status and text."""
    with programs.started(programs.command(name, shards)) as program:
        lines = []
        for line in _lines(program):
            lines.append(json.loads(line))
            if lines[-1] == "leaving":
                break
        with programs.in_time():
            _, errors = program.communicate(timeout=programs.DEADLINE_S)
    assert lines[-1] == "leaving", errors
    assert lines[:-1] == [[] for _ in lines[:-1]]  # no threads
    assert program.returncode == status
    if status:
        assert errors.rstrip().endswith("RuntimeError: the trainer's own error")
        assert errors.count("Traceback") == 1
    else:
        assert errors == ""


def test_ctrl_c_ends_a_program(shards: str) -> None:
    """Pain 26: Ctrl-C ends a training loop within 2 s, as it ends any Python program."""
    with programs.started(programs.command("interrupted", shards)) as program:
        assert next(_lines(program)) == '"training"\n'
        with programs.in_time():
            program.send_signal(signal.SIGINT)
            _, errors = program.communicate(timeout=programs.DEADLINE_S)
    assert program.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_a_second_ctrl_c_ends_a_program_that_is_closing(shards: str) -> None:
    """Pain 26: Ctrl-C wakes a wait for a batch; a second one while the loader closes ends the program at once."""
    with programs.started(programs.command("interrupted_twice", shards)) as program:
        lines = _lines(program)
        assert next(lines) == '"training"\n'
        with programs.in_time():
            program.send_signal(signal.SIGINT)
            assert next(lines) == '"closing"\n'
            program.send_signal(signal.SIGINT)
            _, errors = program.communicate(timeout=programs.DEADLINE_S)
    assert program.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors


@pytest.mark.parametrize("stalls_at", ["index", "read"])
def test_ctrl_c_ends_a_wait_for_a_store_that_stalls(tmp_path: Path, stalls_at: str) -> None:
    """Pain 26: while a store stalls, in making the index or in a large read, Ctrl-C still ends a program within 2 s."""
    manifest = str(tmp_path / "index.parquet")
    with run_faulty_http() as server:
        url = server.put("a.tar", tar_bytes([("large", {"cls": b"1", "raw": bytes(20 << 20)})]))
        if stalls_at == "read":
            load(stoker.Pipeline(stoker.tar(url, manifest=manifest), [], batch_size=1)).close()
        server.scripts["/a.tar"].extend([Stall()] * 50)
        with programs.started(programs.command("read", url, manifest)) as program:
            assert server.stalling.wait(programs.DEADLINE_S)
            with programs.in_time():
                program.send_signal(signal.SIGINT)
                _, errors = program.communicate(timeout=programs.DEADLINE_S)
    assert program.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")


def _lines(program: subprocess.Popen[str]) -> Iterator[str]:
    assert program.stdout is not None
    return iter(program.stdout.readline, "")


def test_a_fork_reads_on(shards: str) -> None:
    """Pain 30: a child that the user forked reads on from local files, and the parent is not disturbed."""
    ended = programs.run("fork_after_reading", shards)
    assert ended.returncode == 0, ended.stderr
    counts, status, rest = (json.loads(line) for line in ended.stdout.splitlines())
    assert (counts, status, rest) == ([56, 60], 0, 56)


def test_a_fork_that_read_from_a_bucket_is_told(s3_bucket: Bucket) -> None:
    """Pain 30: where a store's client does not survive a fork, the child gets a clear error, not a hang."""
    samples = [(f"{number:03d}", {"cls": b"1"}) for number in range(60)]
    url = s3_bucket.put("a.tar", tar_bytes(samples))
    options = json.dumps({"storage_options": dict(s3_bucket.storage_options)})
    ended = programs.run("fork_after_reading", url, options)
    assert ended.returncode == 0, ended.stderr
    found, status, rest = (json.loads(line) for line in ended.stdout.splitlines())
    assert "fork" in found
    assert "spawn" in found
    assert (status, rest) == (0, 56)


def test_the_house_is_as_it_was(tmp_path: Path) -> None:
    """DESIGN §9: importing and using a loader changes no global setting of the process."""
    make_shards(tmp_path / "pictures", (12,))
    ended = programs.run("guest", f"{tmp_path}/pictures/*.tar", numbered(tmp_path / "a.tar", 20))
    assert ended.returncode == 0, ended.stderr
    assert [json.loads(line) for line in ended.stdout.splitlines()] == [24, {}]
