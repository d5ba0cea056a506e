"""Devices that are meant, and those that cannot be."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from stoker.device.place import find_place
from stoker.errors import MissingDependencyError, SpecError


@pytest.mark.parametrize("device", ["cpu", "cpu:0", torch.device("cpu")], ids=str)
def test_the_cpu(device: Any) -> None:
    assert find_place(device) == "cpu"


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "", 1.5, object], ids=["gpu", "cuda:x", "empty", "1.5", "class"])
def test_what_torch_does_not_know_is_refused(device: Any) -> None:
    with pytest.raises(SpecError, match="expected cpu, cuda, cuda: and a number"):
        find_place(device)


@pytest.mark.parametrize("device", ["meta", "xpu"])
def test_other_kinds_are_refused(device: str) -> None:
    with pytest.raises(SpecError, match=f"device is '{device}'; batches are brought to cpu or cuda"):
        find_place(device)


def test_a_gpu_that_is_not_there_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        SpecError, match=r"'cuda', and torch finds no CUDA device .*built .*nvidia-smi.*leave device out"
    ):
        find_place("cuda")


def test_a_number_that_no_gpu_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    with pytest.raises(SpecError, match="'cuda:2'; there are 2 CUDA devices, from cuda:0 to cuda:1"):
        find_place("cuda:2")
    assert find_place("cuda") == "cuda:1"
    assert find_place(0) == "cuda:0"


def test_without_torch_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"stoker\[torch\]"):
        find_place("cuda")
