"""Results as messages: equal, writable, and not copied where they already lie in shared memory."""

from __future__ import annotations

import gc
import os
import pickle
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from stoker.batch import BufferPool, to_torch
from stoker.memory.arena import Arena
from stoker.processes.lent import LentMemory
from stoker.processes.objects import Encoder, decode, inlined
from stoker.processes.results.layout import INLINE, parse
from stoker.processes.results.outgoing import LARGE_BYTES
from support.batch_kinds import pictures
from support.same_values import assert_same

ARENA_BYTES = 64 << 20
Point = namedtuple("Point", ["x", "y"])  # noqa: PYI024  # as users write it


@dataclass
class Sample:
    image: Any
    label: Any = None


class Subclass(torch.Tensor):
    """A user's own kind of tensor."""


class Sides:
    """A worker and a trainer in one process, with memory between them."""

    def __init__(self, max_bytes: int = ARENA_BYTES) -> None:
        self.arena = Arena.create(max_bytes)
        self.pool = BufferPool(allocate=self.arena.allocate)
        self.encoder = Encoder(self.pool, self.arena)
        self.memory = LentMemory.of(os.dup(self.arena.fd))

    def message(self, value: Any) -> memoryview:
        return body_of(self.encoder.encode(value))

    def pass_on(self, value: Any) -> Any:
        return decode(self.message(value), self.memory)

    def take_back(self) -> list[int]:
        returned = self.memory.take_returned()
        self.encoder.release(returned)
        return returned


@pytest.fixture
def sides() -> Iterator[Sides]:
    made = Sides()
    yield made
    made.arena.close()


def body_of(parts: list[bytes | memoryview]) -> memoryview:
    return memoryview(bytearray(b"".join(parts)))


def places_of(body: memoryview) -> list[int]:
    return [place.offset for place in parse(body).places]


BIG = LARGE_BYTES * 3 // 4  # elements: large in every dtype of two bytes and more
NUMBERS = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
    torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
]  # fmt: skip


def numbers(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Any bits that are a number of the dtype."""
    count = int(np.prod(shape))
    if dtype is torch.bool:
        return (torch.arange(count) % 3 == 0).reshape(shape)
    bits = torch.arange(count * dtype.itemsize).to(torch.uint8)
    return bits.view(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (5, 7), (BIG, 3)], ids=str)
def test_tensors_of_every_dtype(sides: Sides, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    assert_same(sides.pass_on(numbers(dtype, *shape)), numbers(dtype, *shape))


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_complex_half(sides: Sides) -> None:
    assert_same(sides.pass_on(numbers(torch.complex32, 9)), numbers(torch.complex32, 9))


@pytest.mark.parametrize("size", [4, 64], ids=["small", "large"])
@pytest.mark.parametrize(
    "form",
    [
        lambda t: t.contiguous(memory_format=torch.channels_last),
        lambda t: t[:1].contiguous(memory_format=torch.channels_last),
        lambda t: t.permute(3, 0, 2, 1),
        lambda t: t.transpose(0, 1),
        lambda t: t[:, :1].expand(-1, 5, -1, -1),
        lambda t: t[0, 0].unfold(0, 3, 1),
        lambda t: t[0, 0, 0, 0].expand(40_000),
        lambda t: t[1:2, 1:],
    ],
)
def test_the_order_in_memory_stays(sides: Sides, form: Any, size: int) -> None:
    tensor = form(torch.rand(2, 3, size, size))
    found = sides.pass_on(tensor)
    assert_same(found, tensor)
    assert found.stride() == tensor.stride()


@pytest.mark.parametrize("size", [4, 200], ids=["small", "large"])
def test_gaps_between_elements_are_not_sent(sides: Sides, size: int) -> None:
    whole = torch.rand(size, 4 * size)
    found = sides.pass_on({"columns": whole[:, ::4], "rows": whole[::2]})
    assert_same(found, {"columns": whole[:, ::4], "rows": whole[::2]})
    assert found["columns"].is_contiguous()
    assert found["columns"].untyped_storage().nbytes() == size * size * 4


def test_a_view_of_a_large_storage_is_a_small_message(sides: Sides) -> None:
    whole = torch.zeros(50 << 20, dtype=torch.uint8)
    parts = sides.encoder.encode([whole[5:9], whole.as_subclass(Subclass)[1000:1010], whole.numpy()[3:6]])
    assert sum(len(part) for part in parts) < 2000
    assert sides.arena.used_bytes == 0


def test_leaves_that_require_grad(sides: Sides) -> None:
    for tensor in (torch.ones(3, requires_grad=True), torch.rand(BIG, requires_grad=True)):
        found = sides.pass_on(tensor)
        assert found.requires_grad
        assert found.is_leaf
        found.sum().backward()
        assert found.grad is not None
        assert_same(found.detach(), tensor.detach())


@pytest.mark.parametrize("cls", [torch.Tensor, Subclass])
def test_a_tensor_inside_a_graph_is_an_error(sides: Sides, cls: type[torch.Tensor]) -> None:
    tensor = torch.ones(3, requires_grad=True).as_subclass(cls) * 2
    with pytest.raises(RuntimeError, match="requires grad and is not a leaf"):
        sides.encoder.encode([tensor])


@pytest.mark.parametrize("count", [3, BIG])
def test_conjugated_and_negated_tensors(sides: Sides, count: int) -> None:
    tensor = torch.complex(torch.rand(count), torch.rand(count))
    for lazy in (tensor.conj(), tensor.conj().imag, torch._efficientzerotensor((count,))):
        found = sides.pass_on(lazy)
        assert not found.is_conj()
        assert not found.is_neg()
        assert found.tolist() == lazy.clone().tolist()


@pytest.mark.parametrize("count", [3, BIG])
def test_subclasses_parameters_and_attributes(sides: Sides, count: int) -> None:
    named = torch.rand(count)
    named.place = "third"  # type: ignore[attr-defined]
    marked = torch.rand(count).as_subclass(Subclass)
    marked.mark = {"a": torch.ones(2)}  # type: ignore[attr-defined]
    value = [named, marked, torch.nn.Parameter(torch.rand(count)), torch.nn.Parameter(torch.rand(count), False)]
    found = sides.pass_on(value)
    assert_same(found, value)
    assert found[0].place == "third"
    assert_same(found[1].mark, {"a": torch.ones(2)})
    if count == BIG:
        assert all(tensor.untyped_storage().data_ptr() % 64 == 0 for tensor in found)
        assert len(places_of(sides.message(value))) == 4


def test_boxes_of_torchvision(sides: Sides) -> None:
    from torchvision import tv_tensors

    boxes = tv_tensors.BoundingBoxes(torch.rand(5, 4), format="XYXY", canvas_size=(10, 20))
    found = sides.pass_on([boxes, tv_tensors.Image(torch.rand(3, 200, 200))])
    assert_same(found[0], boxes)
    assert (found[0].format, found[0].canvas_size) == (boxes.format, boxes.canvas_size)
    assert type(found[1]) is tv_tensors.Image


@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning", "ignore:Sparse .* beta:UserWarning")
@pytest.mark.filterwarnings(
    "ignore:Sparse invariant checks:UserWarning", "ignore:TypedStorage is deprecated:UserWarning"
)
def test_tensors_that_torch_reduces_itself(sides: Sides) -> None:
    dense = torch.tensor([[0.0, 1.5], [2.0, 0.0]])
    assert_same(sides.pass_on(dense.to_sparse()), dense.to_sparse())
    assert_same(sides.pass_on(dense.to_sparse_csr()), dense.to_sparse_csr())
    assert not torch._utils._sparse_tensors_to_validate, "torch keeps what nobody had it check"
    assert_same(sides.pass_on(torch.empty(2, 3, device="meta")), torch.empty(2, 3, device="meta"))
    quantized = torch.quantize_per_tensor(dense, 0.5, 1, torch.quint8)
    assert_same(sides.pass_on(quantized), quantized)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors(sides: Sides, layout: torch.layout) -> None:
    rows = [torch.rand(2, 3), torch.rand(4, 3)]
    found = sides.pass_on(torch.nested.nested_tensor(rows, layout=layout))
    assert found.is_nested
    assert found.layout is layout
    for one, other in zip(found.unbind(), rows, strict=True):
        assert torch.equal(one, other)


def test_a_tensor_of_an_accelerator_is_an_error_that_says_what_to_do(sides: Sides) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode  # says cuda on machines without one

    with FakeTensorMode(allow_non_fake_inputs=True):
        tensor = torch.empty(3, device="cuda")
    with pytest.raises(TypeError, match="on cuda:0: return CPU tensors from workers"):
        sides.encoder.encode({"x": tensor})


@pytest.mark.parametrize(
    "array",
    [
        np.arange(10),
        np.array(3.5),
        np.zeros((0, 3)),
        np.arange(24, dtype=">i4").reshape(2, 3, 4),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(24).reshape(2, 3, 4).transpose(1, 2, 0),
        np.arange(20)[::-2],
        np.arange(40).reshape(5, 8)[1:4, ::3],
        np.array(["a", "bcd"]),
        np.array([b"a", b"bcd"]),
        np.array(["", ""]),
        np.array(["2026-01-01", "NaT"], "datetime64[D]"),
        np.array([1, 2], "timedelta64[ms]"),
        np.array([(1, 2.5), (3, 4.5)], [("a", "i4"), ("b", "f8")]),
        np.array([{"a": 1}, None], dtype=object),
        np.array([1.5, 2.5], np.longdouble),
        np.array([1 + 2j]),
        np.array([True, False]),
        np.arange(6).view(np.recarray),
        np.ma.MaskedArray([1, 2, 3], [False, True, False]),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}{type(array).__name__}",
)
@pytest.mark.parametrize("repeats", [1, 20_000], ids=["small", "large"])
def test_arrays(sides: Sides, array: np.ndarray[Any, Any], repeats: int) -> None:
    if repeats > 1:
        array = array[None].repeat(repeats, 0).transpose()
    assert_same(sides.pass_on(array), array)


def test_slices_of_a_mapped_file(sides: Sides, tmp_path: Path) -> None:
    for count in (10, LARGE_BYTES):
        mapped = np.memmap(tmp_path / f"{count}.bin", np.int32, "w+", shape=(count,))
        mapped[:] = np.arange(count)
        found = sides.pass_on([mapped[2:8], mapped])
        np.testing.assert_array_equal(found[0], mapped[2:8])
        np.testing.assert_array_equal(found[1], mapped)
        found[1][0] = 5
        assert mapped[0] == 0


def test_an_open_file_is_an_error(sides: Sides) -> None:
    with Path(__file__).open() as file, pytest.raises(TypeError, match=r"cannot pickle '_io\.TextIOWrapper'"):
        sides.encoder.encode({"file": file})


def test_read_only_arrays_stay_so_and_all_else_can_be_written(sides: Sides) -> None:
    for count in (3, LARGE_BYTES):
        array, closed, tensor = np.zeros(count), np.zeros(count), torch.zeros(count)
        closed.flags.writeable = False
        found = sides.pass_on([array, closed, tensor, np.broadcast_to(np.float64(3), count)])
        found[0][0] = 1
        found[2][0] = 1
        assert not found[1].flags.writeable
        assert not found[3].flags.writeable
        assert found[3].strides == (0,)


def test_one_object_in_two_places_stays_one(sides: Sides) -> None:
    for tensor in (torch.ones(3), torch.ones(BIG)):
        first, second, third = sides.pass_on([tensor, tensor, tensor.view(-1)])
        assert first is second
        assert third is not first


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=True),
    st.text(max_size=8),
    st.binary(max_size=8),
    st_numpy.arrays(st_numpy.scalar_dtypes(), st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)),
    st.sampled_from([BIG, LARGE_BYTES // 8 - 1, LARGE_BYTES // 8, 5, 0]).map(lambda n: np.arange(n, dtype=np.int64)),
    st.builds(
        lambda dtype, shape: numbers(dtype, *shape),
        st.sampled_from(NUMBERS),
        st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ),
)
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.dictionaries(st.text(max_size=3), inner, max_size=3).map(OrderedDict),
        st.builds(Point, inner, inner),
        st.builds(Sample, inner, inner),
    ),
    max_leaves=8,
)


@given(NESTED)
def test_whatever_is_nested_in_whatever(value: Any) -> None:
    sides = _shared_sides()
    found = sides.pass_on(value)
    assert_same(found, value)
    assert_same(decode(body_of(inlined(sides.message(value), sides.memory)), None), value)
    del found
    gc.collect(0)
    sides.take_back()
    assert not sides.encoder._held


_made: list[Sides] = []


def _shared_sides() -> Sides:
    if not _made:
        _made.append(Sides())
    return _made[0]


# -- memory ------------------------------------------------------------------------------------------------------------


def test_what_lies_in_the_arena_is_not_copied(sides: Sides) -> None:
    block = sides.pool.take(4 * BIG)
    tensor = torch.from_numpy(block.view(np.float32)).fill_(1)
    found = sides.pass_on({"tensor": tensor, "array": block, "view": tensor[100:]})
    tensor[100] = 7
    assert found["tensor"][100] == found["view"][0] == 7
    assert found["array"].view(np.float32)[100] == 7
    assert sides.pool.stats.num_taken == 1


def test_what_lies_elsewhere_is_copied_into_warm_memory(sides: Sides) -> None:
    for step in range(5):
        found = sides.pass_on(torch.full((BIG,), step))
        assert found[0] == found[-1] == step
        del found
        assert len(sides.take_back()) == 1
    stats = sides.pool.stats
    assert (stats.num_taken, stats.num_reused) == (5, 4)


def test_memory_is_held_until_it_is_released(sides: Sides) -> None:
    found = sides.pass_on([torch.ones(BIG), torch.zeros(BIG)])
    before = sides.arena.used_bytes
    kept = found[1][-1:]
    del found
    (returned,) = sides.memory.take_returned()
    assert sides.pool.stats.idle_bytes == 0
    sides.encoder.release([returned, returned, 12345])  # more than was lent is passed over
    assert sides.pool.stats.idle_bytes > 0
    assert sides.arena.used_bytes == before
    assert kept[0] == 0
    del kept
    sides.take_back()
    sides.pool.clear()
    assert sides.arena.used_bytes == 0


def test_memory_that_is_sent_twice_is_held_twice(sides: Sides) -> None:
    tensor = torch.from_numpy(sides.pool.take(4 * BIG))
    first, second = sides.pass_on(tensor), sides.pass_on(tensor)
    del tensor, first
    assert len(sides.take_back()) == 1
    assert sides.pool.stats.idle_bytes == 0
    del second
    sides.take_back()
    assert sides.pool.stats.idle_bytes > 0


def test_forgetting_releases_everything(sides: Sides) -> None:
    sides.encoder.encode([torch.ones(BIG), np.ones(BIG)])
    sides.encoder.forget()
    sides.pool.clear()
    assert sides.arena.used_bytes == 0


class Refusing:
    def __reduce__(self) -> Any:
        raise OSError("this part cannot be sent")


def test_nothing_is_held_of_a_value_that_cannot_be_sent(sides: Sides) -> None:
    with pytest.raises(OSError, match="this part cannot be sent"):
        sides.encoder.encode([torch.ones(BIG), Refusing()])
    gc.collect()
    sides.pool.clear()
    assert sides.arena.used_bytes == 0


def test_encoding_leaves_nothing_for_the_garbage_collector(sides: Sides) -> None:
    gc.collect()
    gc.disable()
    try:
        found = sides.pass_on([torch.ones(BIG), np.ones(BIG), {"a": torch.ones(2)}, pa.py_buffer(bytes(BIG))])
        del found
        sides.take_back()
        sides.pool.clear()
        assert sides.arena.used_bytes == 0
    finally:
        gc.enable()


def test_without_room_buffers_go_inline() -> None:
    sides = Sides(max_bytes=4 * BIG + 8192)
    value = [torch.rand(BIG), np.arange(BIG), torch.ones(BIG, 2)[:, 0]]
    body = sides.message(value)
    assert places_of(body)[0] != INLINE
    assert places_of(body)[1:] == [INLINE, INLINE]
    assert_same(decode(body, sides.memory), value)
    sides.arena.close()


def test_without_an_arena_buffers_go_inline_and_aligned() -> None:
    value = {"a": torch.rand(BIG), "b": np.ones(BIG + 1, np.int8), "c": torch.rand(BIG)}
    body = body_of(Encoder(BufferPool(), None).encode(value))
    found = decode(body, None)
    assert_same(found, value)
    start = np.frombuffer(body, np.uint8).ctypes.data
    assert {(found[key].data_ptr() - start) % 64 for key in "ac"} == {0}
    found["a"][0] = 5


@pytest.mark.parametrize("shift", [1, 8, 24])
def test_a_message_that_does_not_begin_on_a_boundary(shift: int) -> None:
    value = [np.arange(BIG, dtype=np.complex128), torch.rand(BIG)]
    parts = Encoder(BufferPool(), None).encode(value)
    body = memoryview(bytearray(bytes(shift) + b"".join(parts)))[shift:]
    found = decode(body, None)
    assert found[0].flags.aligned
    assert found[1].data_ptr() % 16 == 0
    assert_same(found, value)


def test_a_message_in_memory_that_cannot_be_written_gives_arrays_that_can() -> None:
    value = [np.arange(BIG), torch.rand(BIG)]
    body = memoryview(b"".join(Encoder(BufferPool(), None).encode(value)))
    assert_same(decode(body, None), value)


def test_a_message_with_places_needs_the_memory(sides: Sides) -> None:
    with pytest.raises(ValueError, match="which is not mapped here"):
        decode(sides.message(torch.ones(BIG)), None)


def test_inlined_gives_the_memory_back_when_its_parts_are_gone(sides: Sides) -> None:
    value = [torch.rand(BIG), {"a": np.arange(3)}, np.arange(BIG)]
    parts = inlined(sides.message(value), sides.memory)
    assert sides.memory.take_returned() == []
    body = body_of(parts)
    del parts
    assert len(sides.take_back()) == 2
    assert_same(decode(body, None), value)
    assert [bytes(part) for part in inlined(body, None)] == [bytes(body)]


def test_a_message_whose_value_cannot_be_made_gives_its_memory_back(sides: Sides) -> None:
    body = sides.message([torch.ones(BIG), Failing()])
    with pytest.raises(RuntimeError, match="cannot be made"):
        decode(body, sides.memory)
    gc.collect()
    assert len(sides.take_back()) == 1


def _fail() -> Any:
    raise RuntimeError("cannot be made")


class Failing:
    def __reduce__(self) -> Any:
        return _fail, ()


# -- other libraries ---------------------------------------------------------------------------------------------------


def test_record_batches_lie_where_they_were_built(sides: Sides) -> None:
    batch = pictures(16, sides.pool)
    taken = sides.pool.stats.num_taken
    found = sides.pass_on(batch)
    assert found.equals(batch)
    assert found.schema.equals(batch.schema, check_metadata=True)
    assert sides.pool.stats.num_taken == taken
    fields = to_torch(found)
    assert_same(fields, to_torch(batch))
    fields["image"].fill_(77)  # without a warning: it may be written to
    assert (to_torch(batch)["image"] == 77).all()
    del found
    assert sides.take_back() == []
    del fields
    assert len(sides.take_back()) == 1


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None, 3]),
        pa.array(["a", None, "ccc"]),
        pa.array([[1], None, [2, 3]]),
        pa.array([{"a": 1, "b": "x"}, None]),
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array([True, False, None]),
        pa.nulls(3),
        pa.array(range(100_000)),
        pa.array(range(100_000)).slice(10, 50),
        pa.array([], pa.float16()),
    ],
    ids=lambda array: f"{array.type}[{len(array)}]",
)
def test_arrow_arrays(sides: Sides, array: pa.Array) -> None:
    batch = pa.record_batch({"x": array}, metadata={"a": "b"})
    found, alone = sides.pass_on([batch, array])
    assert found.equals(batch, check_metadata=True)
    assert alone.equals(array)
    assert all(buffer.is_mutable for buffer in alone.buffers() if buffer is not None and buffer.size)


def test_objects_that_bring_their_buffers(sides: Sides) -> None:
    class Holder:
        def __init__(self, content: Any) -> None:
            self.content = content

        def __reduce_ex__(self, protocol: Any) -> Any:
            return Holder, (pickle.PickleBuffer(self.content),)

    sent = [Holder(bytearray(b"a" * size)) for size in (10, LARGE_BYTES)] + [Holder(b"b" * LARGE_BYTES)]
    found = sides.pass_on(sent)
    assert [bytes(holder.content) for holder in found] == [bytes(holder.content) for holder in sent]
    assert [memoryview(holder.content).readonly for holder in found] == [False, False, True]
    assert len(places_of(sides.message(sent))) == 2
