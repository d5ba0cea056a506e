"""Results between two real processes: one memory, one identity of the user's classes."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stoker.processes.objects import decode, inlined
from stoker.processes.results.outgoing import LARGE_BYTES
from support.objects_worker import DEADLINE_S, Worker
from support.programs import environment
from support.same_values import assert_same


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as started:
        yield started


def run(command: list[str]) -> None:
    """Run a program that ends well and says nothing."""
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def make_batch(size: int) -> Any:
    generator = torch.Generator().manual_seed(5)
    image = torch.rand(4, 3, size, size, generator=generator)
    return {
        "image": image.contiguous(memory_format=torch.channels_last),
        "bf16": image.bfloat16(),
        "array": np.arange(size * 1000),
        "text": ["a", b"b", None, 3.5],
    }


@pytest.mark.parametrize("size", [2, 100])
def test_a_batch_of_another_process(worker: Worker, size: int) -> None:
    found = worker.ask(make_batch, size)
    assert_same(found, make_batch(size))
    assert found["image"].is_contiguous(memory_format=torch.channels_last)
    found["image"].fill_(3)
    found["array"][:] = 3
    assert_same(worker.ask(make_batch, size), make_batch(size))


def test_memory_is_used_again_when_the_trainer_dropped_it(worker: Worker) -> None:
    gc.collect()
    worker.ask(int)  # what other tests dropped is back
    places = set()
    for step in range(10):
        found = worker.ask(torch.full, (100_000,), step)
        assert found.min() == found.max() == step
        places.add(found.data_ptr())
        del found
    assert len(worker.memory.take_returned()) == 1
    assert len(places) == 1


def test_memory_that_is_kept_is_not_used_again(worker: Worker) -> None:
    kept = [worker.ask(torch.full, (50_000,), step) for step in range(10)]
    assert [int(batch[0]) for batch in kept] == [int(batch[-1]) for batch in kept] == list(range(10))


def test_a_message_without_its_places_needs_no_memory(worker: Worker) -> None:
    message = worker.message(make_batch, 100)
    body = memoryview(bytearray(b"".join(inlined(message, worker.memory))))
    gc.collect()
    assert worker.ask(len, "abc") == 3
    assert len(worker.released) == 3
    assert_same(decode(body, None), make_batch(100))


def test_batches_outlive_a_worker_that_was_killed() -> None:
    worker = Worker()
    kept = worker.ask(make_batch, 100)
    worker.kill()
    del worker
    gc.collect()
    assert_same(kept, make_batch(100))
    kept["image"].add_(1)


def stack_large() -> Any:
    from pathlib import Path

    import torch.utils.data
    from torch.utils.data._utils import worker as workers

    workers._worker_info = workers.WorkerInfo(id=0, num_workers=1, seed=0, dataset=torch.utils.data.TensorDataset())
    before = set(Path("/proc/self/fd").iterdir())
    batch = torch.utils.data.default_collate([(np.full((3, 64, 64), i), i, torch.ones(9)) for i in range(8)])
    workers._worker_info = None
    return batch, len(set(Path("/proc/self/fd").iterdir()) - before) - 1  # the folder's own


def test_default_collate_makes_the_batch_where_the_trainer_sees_it(worker: Worker) -> None:
    (images, labels, ones), num_descriptors = worker.ask(stack_large)
    assert images.shape == (8, 3, 64, 64)
    assert images[:, 0, 0, 0].tolist() == labels.tolist() == list(range(8))
    assert ones.shape == (8, 9)
    assert num_descriptors <= 0
    assert images.nbytes > LARGE_BYTES


@pytest.mark.parametrize("method", ["new", "fork"])
def test_what_the_script_defines_comes_back_as_what_it_was(method: str) -> None:
    run([sys.executable, "-m", "support.objects_script", method])


def test_results_without_torch_do_not_import_it() -> None:
    program = """
import sys, numpy as np, pyarrow as pa
from stoker.batch.pool import BufferPool
from stoker.processes.objects import Encoder, decode, inlined
value = {"a": np.arange(100_000), "b": pa.record_batch({"x": pa.array([1, 2])}), "c": [1, "2"]}
body = memoryview(bytearray(b"".join(Encoder(BufferPool(), None).encode(value))))
found = decode(body, None)
assert (found["a"] == value["a"]).all() and found["b"].equals(value["b"]) and found["c"] == value["c"]
assert "torch" not in sys.modules
"""
    run([sys.executable, "-c", program])


def test_no_files_stand_in_shared_memory(worker: Worker) -> None:
    before = set(Path("/dev/shm").glob("torch_*"))
    kept = worker.ask(stack_large)
    found = {path for path in set(Path("/dev/shm").glob("torch_*")) - before if f"_{worker.pid}_" in path.name}
    assert not found
    del kept
