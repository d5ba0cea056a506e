"""Fields that are made where the batch is wanted. The device is the CPU here; tests/gpu has the same on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import stoker
from stoker import Backend, ops
from stoker.batch.builder import BatchBuilder
from stoker.batch.device_rows import DeviceRows
from stoker.batch.pool import BufferPool
from stoker.engine.local import LocalSupply
from stoker.errors import CollateError, SampleOrigin
from stoker.plan.resume import Position
from stoker.ranks import Rank
from stoker.sample import Sample
from stoker.supply import Delivery, SupplyOptions
from support import pictures
from support.loading import batches_of, tar_of

OPTIONS = SupplyOptions(1 << 20, 60.0, True, False, "default")


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Twelve pictures, the third and all of the last four broken."""
    content = {
        f"{row:02d}": {"jpg": b"broken" if row == 2 or row >= 8 else pictures.jpeg(row), "cls": str(row).encode()}
        for row in range(12)
    }
    return tar_of(tmp_path_factory.mktemp("device") / "a.tar", content)


def deliveries(pipeline: stoker.Pipeline, backend: str = "dali", device: str | None = "cpu") -> list[Delivery]:
    """What comes out of a supply that leaves on the device what is made there."""
    supply = LocalSupply(
        pipeline,
        Rank(0, 1),
        OPTIONS,
        num_threads=2,
        read_bytes=None,
        backend=Backend(backend),  # type: ignore[arg-type]  # a name
        device=device,
    )
    made = []
    try:
        position: Position = supply._deal.start(0)
        while supply._deal.num_left(position):
            made.append(supply.next(position))
            position = supply._deal.taken(position, made[-1].batch_index)
    finally:
        supply.close()
    return made


def over(shard: str, *more: Any, **settings: Any) -> stoker.Pipeline:
    steps = [ops.DecodeImage("jpg", to="image"), ops.RandomResizedCrop("image", 24), ops.Label("cls"), *more]
    return stoker.Pipeline(stoker.tar(shard), steps, **{"batch_size": 4, "lanes": 1, "on_error": "replace", **settings})


@pytest.mark.parametrize("on_error", ["replace", "drop"])
def test_rows_are_those_that_come_over_the_host(shard: str, on_error: Any) -> None:
    """A replaced row shows its neighbour, a dropped one is gone; a batch without a good sample comes over the host."""
    pipeline = over(shard, on_error=on_error)
    expected = batches_of(pipeline, backend="dali")
    found = deliveries(pipeline)
    assert [len(one.device_fields) for one in found] == [1, 1, 0]
    for one, batch in zip(found[:2], expected, strict=False):
        assert "image" not in one.batch.schema.names
        assert isinstance(one.device_fields["image"], torch.Tensor)
        np.testing.assert_array_equal(one.device_fields["image"].numpy(), batch["image"])
    assert ("image" in found[2].batch.schema.names) or found[2].batch.num_rows == 0


def test_floats_and_layouts_are_made_there(shard: str) -> None:
    pipeline = over(shard, ops.Normalize("image", (0.5,), (0.2,)), ops.ToLayout("image", "NCHW"))
    image = deliveries(pipeline)[0].device_fields["image"]
    assert image.shape == (4, 3, 24, 24)
    assert image.dtype == torch.float32


@pytest.mark.parametrize("more", [[ops.RandAugment("image")], [ops.Map(lambda sample: sample)]], ids=["op", "function"])
def test_what_a_cpu_op_made_last_is_a_column(shard: str, more: list[Any]) -> None:
    one = deliveries(over(shard, *more))[0]
    assert not one.device_fields
    assert "image" in one.batch.schema.names


def test_a_field_keeps_its_place_under_another_name(shard: str) -> None:
    one = deliveries(over(shard, ops.Rename({"image": "x"})))[0]
    assert list(one.device_fields) == ["x"]


@pytest.mark.parametrize("backend, device", [("cpu", "cpu"), ("dali", None)])
def test_nothing_stays_on_a_device_unless_it_is_made_and_wanted_there(shard: str, backend: str, device: Any) -> None:
    one = deliveries(over(shard), backend, device)[0]
    assert not one.device_fields
    assert "image" in one.batch.schema.names


def test_fields_that_are_not_stacked_come_over_the_host(shard: str) -> None:
    one = deliveries(over(shard, collate={"image": "list"}))[0]
    assert not one.device_fields


def test_bytes_on_the_device_count_as_made(shard: str) -> None:
    pipeline = over(shard)
    supply = LocalSupply(
        pipeline, Rank(0, 1), OPTIONS, num_threads=1, read_bytes=None, backend=Backend("dali"), device="cpu"
    )
    supply.next(supply._deal.start(0))
    made = supply.stats()["bytes_made"]
    supply.close()
    assert made > 4 * 24 * 24 * 3


def put(rows: DeviceRows, *values: Any) -> None:
    for row, value in enumerate(values):
        rows.put(row, value, f"key{row}")


def test_rows_that_do_not_fit_are_named() -> None:
    rows = DeviceRows("image", 3, "cpu")
    with pytest.raises(CollateError, match=r"'key1' has the shape \(2, 3\)"):
        put(rows, np.zeros((2, 2), np.uint8), np.zeros((2, 3), np.uint8))
    with pytest.raises(CollateError, match="dtype float32"):
        put(DeviceRows("image", 3, "cpu"), np.zeros((2, 2), np.uint8), np.zeros((2, 2), np.float32))
    with pytest.raises(CollateError, match="'key0' is a str"):
        put(DeviceRows("image", 3, "cpu"), "text")
    with pytest.raises(CollateError, match="sample 'b' has none"):
        rows.finish(range(2), ["a", "b"])


def test_without_any_value_there_is_no_field() -> None:
    builder = BatchBuilder(2, BufferPool(), {}, device="cpu", on_device=["image"])
    for row in range(2):
        builder.put(row, Sample({"cls": row}, SampleOrigin("mem://a", row, str(row)), row, 0, 0))
    assert builder.device_fields(np.arange(2)) == {}
    assert builder.finish(np.arange(2), None, {}).num_rows == 2
