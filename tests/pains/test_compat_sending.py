"""What goes to the workers of a torch dataset: once, by value, or an error that names the part (pains 29, 31)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate

from stoker.compat.loader import DataLoader
from stoker.errors import SpecError
from support import programs
from support.torch_datasets import Loaded, Numbers

PAYLOAD_BYTES = 200 << 20


def test_a_large_dataset_is_sent_once() -> None:
    """Pain 29: 200 MB: in the second epoch the same processes read the same memory; after a change they get it anew."""
    dataset = Loaded(8, PAYLOAD_BYTES)
    with DataLoader(dataset, 2, num_workers=2, collate_fn=list) as loader:
        first, second = ({sample for batch in loader for sample in batch} for _ in range(2))
        dataset.table[0] = 7
        third = {sample for batch in loader for sample in batch}
    assert first == second
    assert len({pid for pid, _, _ in first}) == 2
    assert len({file for _, file, _ in first}) == 1  # one copy for both
    assert "0" not in {file for _, file, _ in first}  # and no private one
    assert {pid for pid, _, _ in third} == {pid for pid, _, _ in first}
    assert {value for _, _, value in third} == {7}
    assert {file for _, file, _ in third} != {file for _, file, _ in first}


class WithTransform(Numbers):
    """Applies a function to each sample."""

    def __init__(self, count: int, transform: Any) -> None:
        super().__init__(count)
        self.transform = transform

    def __getitem__(self, index: int) -> Any:
        return self.transform(index)


def test_lambdas_closures_and_local_classes_are_sent() -> None:
    """Pain 31: functions without a name, what they close over, and classes inside functions go by value."""
    offset = torch.tensor([100])

    class Local(Numbers):
        def __getitem__(self, index: int) -> Any:
            return index + offset

    def collate(samples: Any) -> Any:
        return default_collate(samples) * 2

    def started(worker_id: int) -> None:
        torch.manual_seed(worker_id + len(offset))

    loader = DataLoader(Local(4), 2, num_workers=1, collate_fn=collate, worker_init_fn=started)
    assert [batch.tolist() for batch in loader] == [[[200], [202]], [[204], [206]]]
    loader = DataLoader(WithTransform(3, lambda index: index + int(offset)), num_workers=1)
    assert [int(batch) for batch in loader] == [100, 101, 102]


@pytest.mark.parametrize("kind", ["file", "lock", "generator", "thread"])
@pytest.mark.parametrize("place", ["attribute", "nested", "closure"])
def test_what_cannot_be_sent_is_named(tmp_path: Path, kind: str, place: str) -> None:
    """Pain 31: a handle somewhere in the dataset: an error within 1 s that names the part, before any worker starts."""
    path = tmp_path / "file"
    path.write_text("text", encoding="utf-8")
    with path.open(encoding="utf-8") as opened:
        handles: dict[str, Any] = {
            "file": opened,
            "lock": threading.Lock(),
            "generator": (number for number in range(3)),
            "thread": threading.current_thread(),
        }
        handle = handles[kind]
        dataset: Any = Numbers(3)
        match place:
            case "attribute":
                dataset.reader = handle
            case "nested":
                dataset.settings = {"a": 1, "reader": [handle]}
            case _:
                dataset = WithTransform(3, lambda index: (handle, index))
        loader = DataLoader(dataset, num_workers=1)
        named = {"attribute": "reader", "nested": "reader", "closure": "transform.*handle"}[place]
        with programs.in_time(), pytest.raises(SpecError, match=rf"(?s)dataset.*{named}"):
            iter(loader)


def test_an_open_file_with_fork(tmp_path: Path) -> None:
    """Pain 31: ``multiprocessing_context="fork"`` sends nothing: handles work as they do with torch."""
    path = tmp_path / "file"
    path.write_text("abc", encoding="utf-8")
    with path.open(encoding="utf-8") as opened:
        loader = DataLoader(WithTransform(3, opened.read), num_workers=1, multiprocessing_context="fork")
        assert [batch[0] for batch in loader] == ["", "a", "bc"]
