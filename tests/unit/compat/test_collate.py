"""default_collate over a pool: torch's results, in memory that the trainer sees."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data._utils import collate as torchs
from torch.utils.data._utils import worker as workers

from stoker.batch import BufferPool
from stoker.compat import collate
from stoker.processes.results.outgoing import LARGE_BYTES
from support.same_values import assert_same

Point = namedtuple("Point", ["x", "y"])  # noqa: PYI024  # as users write it
LARGE = LARGE_BYTES // 4  # elements of a sample: four of them are a large batch in every dtype


class Subclass(torch.Tensor):
    """A user's own kind of tensor."""


@pytest.fixture(scope="module")
def pool() -> Iterator[BufferPool]:
    """The state of a worker, as its default_collate finds it; torch's own way to shared memory is barred."""
    before = torchs.default_collate_fn_map[torch.Tensor], torchs.collate_tensor_fn
    made = BufferPool()
    collate.install(made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            workers,
            "_worker_info",
            workers.WorkerInfo(id=0, num_workers=1, seed=0, dataset=torch.utils.data.TensorDataset()),
        )
        patch.setattr(torch.UntypedStorage, "_new_shared", _barred)
        yield made
    torchs.default_collate_fn_map[torch.Tensor], torchs.collate_tensor_fn = before


def _barred(*_: Any, **__: Any) -> Any:
    raise AssertionError("a file in /dev/shm")


def in_trainer(batch: Any) -> Any:
    """What torch's loader without workers makes of it."""
    own = {**torchs.default_collate_fn_map, torch.Tensor: lambda batch, *, collate_fn_map: torch.stack(batch, 0)}
    return torchs.collate(batch, collate_fn_map=own)


def collated(batch: Any) -> Any:
    return torch.utils.data.default_collate(batch)


def tensors(dtype: torch.dtype, *shape: int) -> list[torch.Tensor]:
    count = int(np.prod(shape))
    return [(torch.arange(count) % 100 + i).reshape(shape).to(dtype) for i in range(4)]


DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
    torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (LARGE,), (2, LARGE, 2)], ids=str)
def test_tensors_of_every_dtype(pool: BufferPool, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    batch = tensors(dtype, *shape)
    taken = pool.stats.num_taken
    assert_same(collated(batch), in_trainer(batch))
    assert pool.stats.num_taken - taken == (len(batch) * batch[0].nbytes >= LARGE_BYTES)


@pytest.mark.parametrize("edge", [4, 64], ids=["small", "large"])
@pytest.mark.parametrize(
    "form",
    [
        lambda t: t.permute(1, 2, 0),
        lambda t: t[:, ::2],
        lambda t: t[:, :1].expand(-1, 7, -1),
        lambda t: t[None].contiguous(memory_format=torch.channels_last),
        lambda t: torch.complex(t, t).conj(),
        lambda t: torch.complex(t, t).conj().imag,
    ],
)
def test_samples_in_any_order_in_memory(pool: BufferPool, form: Any, edge: int) -> None:
    batch = [form(torch.rand(3, edge, edge)) for _ in range(3)]
    found = collated(batch)
    assert_same(found, in_trainer(batch))
    assert found.is_contiguous()


@pytest.mark.parametrize("count", [3, LARGE])
@pytest.mark.parametrize(
    "dtypes",
    [
        (torch.float32, torch.float64),
        (torch.int32, torch.float32),
        (torch.bool, torch.uint8),
        (torch.float16, torch.bfloat16),
    ],
)
def test_mixed_dtypes_are_promoted(pool: BufferPool, dtypes: tuple[torch.dtype, torch.dtype], count: int) -> None:
    batch = [torch.ones(count, dtype=dtype) for dtype in dtypes]
    assert_same(collated(batch), in_trainer(batch))


@pytest.mark.parametrize("count", [3, LARGE])
def test_subclasses_and_parameters(pool: BufferPool, count: int) -> None:
    from torchvision import tv_tensors

    for batch in (
        [torch.rand(count).as_subclass(Subclass) for _ in range(4)],
        [torch.rand(count), torch.rand(count).as_subclass(Subclass)],
        [torch.nn.Parameter(torch.rand(count), requires_grad=False) for _ in range(4)],
        [tv_tensors.Image(torch.rand(3, 2, count)) for _ in range(4)],
    ):
        assert_same(collated(batch), in_trainer(batch))


@pytest.mark.parametrize("count", [3, LARGE])
def test_samples_that_require_grad_are_torchs_error(pool: BufferPool, count: int) -> None:
    batch = [torch.rand(count, requires_grad=True) for _ in range(4)]
    with pytest.raises(
        RuntimeError, match=r"functions with out=\.\.\. arguments don't support automatic differentiation"
    ):
        collated(batch)


@pytest.mark.parametrize("lengths", [(3, 4), (4, 3), (LARGE, LARGE * 2), (LARGE * 2, LARGE)])
def test_unequal_shapes_are_torchs_error(pool: BufferPool, lengths: tuple[int, int]) -> None:
    one, other = lengths
    text = rf"stack expects each tensor to be equal size, but got \[{one}\] at entry 0 and \[{other}\] at entry 1"
    with pytest.raises(RuntimeError, match=text):
        collated([torch.ones(one), torch.ones(other)])
    with pytest.raises(RuntimeError, match=text):
        collated([np.ones(one), np.ones(other)])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning", "ignore:Sparse .* beta:UserWarning")
def test_other_layouts(pool: BufferPool) -> None:
    with pytest.raises(RuntimeError, match="Batches of sparse tensors are not currently supported"):
        collated([torch.eye(3).to_sparse()] * 2)
    with pytest.raises(RuntimeError, match="Batches of sparse tensors are not currently supported"):
        collated([torch.eye(3).to_sparse_csr()] * 2)
    with pytest.raises(RuntimeError, match="Batches of nested tensors are not currently supported"):
        collated([torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])] * 2)
    for count in (3, LARGE_BYTES):
        batch = [torch.quantize_per_tensor(torch.ones(count), 0.5, 0, torch.quint8)] * 2
        assert torch.equal(collated(batch).dequantize(), in_trainer(batch).dequantize())
        assert_same(
            collated([torch.ones(count, device="meta")] * 2), in_trainer([torch.ones(count, device="meta")] * 2)
        )


SAMPLES = st.recursive(
    st.sampled_from(["number", "float", "text", "bytes", "array", "large", "tensor", "numpy", "bool"]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3),
        st.lists(inner, min_size=1, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3),
        st.builds(Point, inner, inner),
    ),
    max_leaves=6,
)
LEAVES: dict[str, Any] = {
    "number": lambda i: i,
    "float": lambda i: i / 3,
    "text": str,
    "bytes": bytes,
    "array": lambda i: np.full((2, 3), i, np.float32),
    "large": lambda i: np.full(LARGE, i),
    "tensor": lambda i: torch.full((3,), i),
    "numpy": np.float32,
    "bool": lambda i: i % 2 == 0,
}


def filled(shape: Any, i: int) -> Any:
    if isinstance(shape, str):
        return LEAVES[shape](i)
    if isinstance(shape, dict):
        return {key: filled(value, i) for key, value in shape.items()}
    if isinstance(shape, Point):
        return Point(*(filled(value, i) for value in shape))
    return type(shape)(filled(value, i) for value in shape)


@given(shape=SAMPLES, size=st.integers(1, 4))
def test_whatever_a_sample_is(pool: BufferPool, shape: Any, size: int) -> None:
    batch = [filled(shape, i) for i in range(size)]
    assert_same(collated(batch), in_trainer(batch))


def test_a_users_function_that_calls_torchs(pool: BufferPool) -> None:
    taken = pool.stats.num_taken
    found = torchs.collate_tensor_fn([torch.ones(LARGE)] * 4)  # looked up here, so ours
    own = torchs.collate([torch.ones(LARGE)] * 4, collate_fn_map={**torchs.default_collate_fn_map, set: list})
    assert pool.stats.num_taken - taken == 2
    assert_same(found, own)


def test_installed_again_with_another_pool(pool: BufferPool) -> None:
    other = BufferPool()
    collate.install(other)
    collated([torch.ones(LARGE)] * 4)
    collate.install(pool)
    collated([torch.ones(LARGE)] * 4)
    assert other.stats.num_taken == 1
