"""A trainer in a process of its own trains, dies and goes on; here in local mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster import Child, free_port, until
from support.streams import assert_same_stream, local_stream, make_pictures, pictures
from support.trainer import Job, Trainer


@pytest.fixture
def pipeline(tmp_path: Path) -> str:
    return pictures(make_pictures(tmp_path / "shards"), batch_size=16).to_json()


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    made = Trainer(tmp_path)
    yield made
    made.close()


def test_it_takes_one_job_after_another(trainer: Trainer, pipeline: str) -> None:
    for rank in range(2):
        trainer.begin(Job(pipeline, 20, None, rank, 2))
        found = [step.digest for step in iter(trainer.step, None)]
        assert_same_stream(found, local_stream(pipeline, 20, rank, 2))
        assert trainer.stats["batches"] >= 20


def test_killed_it_goes_on_from_a_state(trainer: Trainer, pipeline: str) -> None:
    trainer.begin(Job(pipeline, 10_000, None, step_s=0.001))
    taken = [trainer.step() for _ in range(5)]
    taken += trainer.kill()
    last = taken[-1]
    assert last is not None
    trainer.begin(Job(pipeline, 3, None, state=last.state))
    found = [step.digest for step in [*taken, *iter(trainer.step, None)] if step]
    assert_same_stream(found, local_stream(pipeline, len(taken) + 3))


def test_an_error_is_told(trainer: Trainer, pipeline: str) -> None:
    trainer.begin(Job(pipeline.replace("jpg", "gif"), 1, None))
    with pytest.raises(AssertionError, match="gif"):
        trainer.step()


def test_a_frozen_child_says_nothing_until_it_is_thawed(trainer: Trainer, pipeline: str) -> None:
    trainer.begin(Job(pipeline, 1, None))
    assert len(list(iter(trainer.step, None))) == 1
    trainer.child.freeze()
    trainer.begin(Job(pipeline, 1, None))
    with pytest.raises(AssertionError, match="no line"):
        trainer.step(0.2)
    trainer.child.thaw()
    assert trainer.step() is not None


def test_a_child_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    arguments = ["start_a_trainer", str(tmp_path / "trainer.log")]
    parent = Child("parent", tmp_path / "log", "support.service_programs", arguments, takes_orders=True)
    try:
        line = parent.next_line()
        assert line is not None, parent.log()
    finally:
        parent.close()
    until("the child is gone", lambda: not Path(f"/proc/{line}").exists() or _is_zombie(int(line)))


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"


def test_a_free_port_is_not_the_systems() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    assert 1024 < free_port() < first
