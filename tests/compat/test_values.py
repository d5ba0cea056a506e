"""What samples and batches may be made of, side by side with torch's loader."""

from __future__ import annotations

import datetime as dt
import gc
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from support.side_by_side import assert_same, epochs
from support.torch_datasets import Box, Keyed, Numbers, Pair, Valued, Wide, as_list, as_pinned

WORKERS = pytest.mark.parametrize("num_workers", [0, 2])

Legacy = namedtuple("Legacy", ["a", "b"])  # noqa: PYI024  # the untyped kind
DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64,
    torch.float8_e4m3fn,
]  # fmt: skip


def of(*values: Any) -> Valued:
    """Four samples, at least two of them given."""
    return Valued([*values, *values][:4])


COLLATED: dict[str, Valued] = {
    "ints": of(1, 2, 3),
    "floats": of(1.5, float("nan"), float("-inf")),
    "bools": of(True, False),
    "complexes": of(torch.tensor(1 + 2j), torch.tensor(3j)),
    "texts": of("a", "", "número ∞"),
    "bytes": of(b"a", b"", bytes(300)),
    "0-dim tensors": of(torch.tensor(3), torch.tensor(4)),
    "empty tensors": of(torch.empty(0), torch.empty(0)),
    "empty tensors with shape": of(torch.empty(2, 0, 3, dtype=torch.int16), torch.empty(2, 0, 3, dtype=torch.int16)),
    "numpy scalars": of(np.float32(1.5), np.float32(2)),
    "numpy integers": of(np.int16(1), np.int16(2)),
    "numpy bools": of(np.bool_(True), np.bool_(False)),
    "0-dim arrays": of(np.array(1, np.uint8), np.array(2, np.uint8)),
    "arrays": of(np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)),
    "arrays by column": of(np.asfortranarray(np.arange(6).reshape(2, 3)), np.zeros((2, 3), np.int64)),
    "arrays backwards": of(np.arange(6)[::2], np.arange(6)[3:]),
    "dicts": of({"b": 1, "a": torch.ones(2)}, {"b": 2, "a": torch.zeros(2)}),
    "ordered dicts": of(OrderedDict(x=1, y="s"), OrderedDict(x=2, y="t")),
    "default dicts": of(defaultdict(list, {"x": 1}), defaultdict(list, {"x": 2})),
    "keys that are no texts": of({1: 1, (2, 3): 2.0}, {1: 3, (2, 3): 4.0}),
    "tuples": of((1, "a"), (2, "b")),
    "lists": of([1, torch.tensor([1.0])], [2, torch.tensor([2.0])]),
    "named tuples": of(Pair(1, np.zeros(2)), Pair(2, np.ones(2))),
    "old named tuples": of(Legacy(1, "a"), Legacy(2, "b")),
    "nested": of({"a": [(1, {"b": Pair("x", [1.0])})]}, {"a": [(2, {"b": Pair("y", [2.0])})]}),
    "empty containers": of([], [], []),
    "with gradient": of(torch.ones(2), torch.zeros(2)),
    "transposed": of(torch.arange(6).reshape(2, 3).T, torch.zeros(3, 2, dtype=torch.int64)),
    "channels last": of(*(torch.rand(3, 4, 5).permute(2, 0, 1) for _ in range(2))),
    "expanded": of(torch.tensor([1.0]).expand(5), torch.tensor([2.0]).expand(5)),
    "a view of much": of(torch.arange(1000)[3:5], torch.arange(1000)[7:9]),
    "parameters": of(torch.nn.Parameter(torch.ones(2), requires_grad=False), torch.ones(2)),
    **{str(dtype): of(torch.tensor([0, 1, 1]).to(dtype), torch.tensor([1, 0, 1]).to(dtype)) for dtype in DTYPES},
}


@WORKERS
def test_default_collate(num_workers: int) -> None:
    """Everything that torch's default_collate takes, each kind in a batch of its own."""
    samples = {(kind, row): value for kind, of_kind in COLLATED.items() for row, value in enumerate(of_kind.values)}
    batches = [[(kind, row) for row in range(len(of_kind.values))] for kind, of_kind in COLLATED.items()]
    assert_same(
        lambda loader_class: epochs(loader_class(Keyed(dict(samples)), batch_sampler=batches, num_workers=num_workers))
    )


AS_THEY_ARE: list[Any] = [
    None,
    1,
    "text",
    b"bytes",
    {1, 2},
    torch.tensor(1.0, dtype=torch.bfloat16),
    torch.eye(3).to_sparse(),
    torch.ones(2, requires_grad=True).detach().requires_grad_(),
    torch.arange(24).reshape(2, 3, 4).transpose(0, 2),
    torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last),
    torch.tensor(5).expand(3, 3),
    torch.empty(0),
    torch.empty(3, 0),
    torch.arange(10)[2:4],
    np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.array(["a", "bcd"]),
    np.array([None, "x", 3], dtype=object),
    np.array(["2026-11-30"], dtype="datetime64[D]"),
    np.zeros(2, dtype=[("x", "<f4"), ("y", "i1")]),
    np.float64(1.5),
    Box(torch.ones(2), {"deep": [Box(1, None)]}),
    Pair(None, ()),
    Legacy([1], {}),
    dt.date(2026, 11, 30),
    OrderedDict(b=1, a=2),
    1 << 100,
    torch.float16,
    slice(1, 2),
    ...,
]


@WORKERS
def test_values_as_they_are(num_workers: int) -> None:
    """What a collate function hands out comes back as it was: None, sparse, strided, types of one's own."""
    with torch.sparse.check_sparse_tensor_invariants(False):  # type: ignore[no-untyped-call]  # lest torch warns of it
        assert_same(
            lambda loader_class: epochs(
                loader_class(Valued(AS_THEY_ARE), 4, num_workers=num_workers, collate_fn=as_list)
            )
        )


@WORKERS
def test_values_without_batching(num_workers: int) -> None:
    """batch_size=None converts arrays to tensors, as torch does, and leaves the rest."""
    values = [value for value in AS_THEY_ARE if not isinstance(value, np.ndarray) or value.dtype.kind in "fiu"]
    with torch.sparse.check_sparse_tensor_invariants(False):  # type: ignore[no-untyped-call]  # the same
        assert_same(lambda loader_class: epochs(loader_class(Valued(values), None, num_workers=num_workers)))


@WORKERS
def test_values_with_gaps(num_workers: int) -> None:
    """Tensors and arrays that leave memory out: equal values; ours sends, and gives, only what they show."""
    values = [np.arange(10)[::3], np.arange(24).reshape(4, 6)[:, 2:4], torch.arange(24).reshape(4, 6)[1:, ::2]]

    def use(loader_class: Any) -> Any:
        batches = epochs(loader_class(Valued(values), 1, num_workers=num_workers, collate_fn=as_list))
        return [[type(value), value.dtype, value.shape, value.tolist()] for batch in batches for (value,) in batch]

    assert_same(use)


@WORKERS
def test_one_value_twice_in_a_batch(num_workers: int) -> None:
    """Tensors that share memory, or are one object, in one batch: equal values, and both may be written to."""

    def use(loader_class: Any) -> Any:
        (batch,) = loader_class(Valued([0]), collate_fn=shared, num_workers=num_workers)
        answer = [[tensor.clone() for tensor in batch]]
        for tensor in batch:
            tensor.add_(1)
        return answer

    assert_same(use)


def shared(samples: list[Any]) -> Any:
    """Three views of one memory."""
    base = torch.arange(10)
    return base, base[2:5], base[::3]


@WORKERS
def test_batches_may_be_written_to_and_kept(num_workers: int) -> None:
    """Each batch has memory of its own: what is written to one shows in no other, now or in the next epoch."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(Numbers(40), batch_size=4, num_workers=num_workers)
        kept: list[Any] = []
        for _ in range(2):
            for batch in loader:
                batch[0].mul_(-1).sub_(len(kept))
                kept.append(batch)
        return kept

    assert_same(use)


KEPT: list[Callable[[torch.Tensor], Any]] = [
    lambda batch: batch.mul_(-1),
    lambda batch: batch[1, 3:5, 7:9],
    lambda batch: batch.numpy()[2],
    lambda batch: batch.numpy().ravel()[4:6],
    lambda batch: torch.utils.dlpack.from_dlpack(batch)[0],
    lambda batch: batch.view(torch.uint8).detach(),
    lambda batch: torch.nn.Parameter(batch.T),
    lambda batch: batch.numpy().data.cast("B")[8:16],
    lambda batch: batch.untyped_storage()[:8],
    lambda batch: None,
]


@WORKERS
def test_what_is_kept_is_not_used_again(num_workers: int) -> None:
    """A batch, or any view of it by torch, NumPy, DLPack or Python, keeps its memory: also when the loader is gone."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(Wide(90), 3, num_workers=num_workers)
        kept = [KEPT[number % len(KEPT)](batch) for _ in range(2) for number, batch in enumerate(loader)]
        del loader
        gc.collect()
        found = [np.asarray(value.detach() if isinstance(value, torch.Tensor) else value) for value in kept]
        return [[array.shape, array.min(), array.max()] for array in found if array.dtype != object]

    assert_same(use)


@WORKERS
def test_tensors_may_grow_and_be_shared(num_workers: int) -> None:
    """A batch's tensor can be resized, pickled, turned into an array and back."""

    def use(loader_class: Any) -> Any:
        import pickle

        answer: list[Any] = []
        for batch, *_ in loader_class(Numbers(4), batch_size=2, num_workers=num_workers):
            again = pickle.loads(pickle.dumps(batch))
            array = batch.numpy()
            array += 1
            answer += [batch, again, array.flags.writeable, array.flags.aligned, batch.is_contiguous()]
            answer.append(torch.cat([batch, batch]).view(-1))
        return answer

    assert_same(use)


@WORKERS
def test_a_batch_of_a_type_of_ones_own(num_workers: int) -> None:
    """torch's documented custom batch with ``pin_memory``; without an accelerator it is not pinned, with a warning."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(Numbers(5), 2, collate_fn=as_pinned, num_workers=num_workers, pin_memory=True)
        return epochs(loader, 2), loader.pin_memory

    assert_same(use)


@WORKERS
@pytest.mark.parametrize("device", ["", "cuda"])
def test_pin_memory(num_workers: int, device: str) -> None:
    """Without an accelerator: torch's warnings and the same batches."""
    assert_same(
        lambda loader_class: epochs(
            loader_class(Numbers(5), 2, num_workers=num_workers, pin_memory=True, pin_memory_device=device)
        )
    )


@WORKERS
def test_lambda_and_local_collate(num_workers: int) -> None:
    """Functions without a name of their own, with what they close over."""
    offset = torch.tensor([10, 10])

    def local(samples: list[Any]) -> Any:
        return default_collate([sample[0] + offset for sample in samples])

    assert_same(lambda loader_class: epochs(loader_class(Numbers(5), 2, num_workers=num_workers, collate_fn=local)))
    assert_same(
        lambda loader_class: epochs(
            loader_class(Numbers(5), 2, num_workers=num_workers, collate_fn=lambda samples: len(samples) + 1)
        )
    )
