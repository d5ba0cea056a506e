"""Batches from a service, brought to a device one ahead: the same ones. The device is the CPU here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from stoker import ops
from stoker.testing import keys_of
from support.cluster import Cluster
from support.loading import load
from support.streams import pictures

DEVICE_OPS = (ops.ToLayout("image", "NCHW"), ops.Cast("image", "float16"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), 2) as running:
        yield running


def test_the_stream_is_local_modes(cluster: Cluster, shards: str) -> None:
    pipeline = pictures(shards)
    with (
        load(pipeline, output="torch") as local,
        load(pipeline, output="torch", service=cluster.url, device="cpu", device_ops=DEVICE_OPS) as loader,
    ):
        for expected, found in zip(local, loader, strict=True):
            assert found["__key__"] == expected["__key__"]
            assert torch.equal(found["image"], expected["image"].permute(0, 3, 1, 2).half())
            assert loader.state_dict() == local.state_dict()
        stats = loader.stats()
    assert stats["batches"] == stats["device_copies"] == len(loader)
    assert stats["wait_network_s"] >= 0


def test_out_of_order_each_batch_comes_once_and_a_state_goes_on(cluster: Cluster, shards: str) -> None:
    options: dict[str, Any] = {"output": "torch", "service": cluster.url, "device": "cpu", "in_order": False}
    with load(pictures(shards), **options) as loader, load(pictures(shards), **options) as later:
        batches = iter(loader)
        first = [next(batches) for _ in range(7)]
        state = loader.state_dict()
        later.load_state_dict(state)
        rest = list(later)
        assert len(first) + len(rest) == len(loader)
        keys = keys_of(first + rest)
    with load(pictures(shards)) as local:
        expected = keys_of(local)
    assert sorted(keys) == sorted(expected)
