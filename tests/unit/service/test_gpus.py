"""Which GPUs a process may use, found without CUDA; what is said of one that is not here."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.backends.options import Backend
from stoker.errors import MissingDependencyError, SpecError
from stoker_service import backend, gpus
from stoker_service.gpus import Gpu, NoDriverError, chosen, listed_gpus

ALL = [Gpu(f"GPU-{name}", "H200") for name in ("a1", "a2", "b1")]


@pytest.mark.parametrize(
    "variable, expected",
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1", [1]),
        ("2, 0", [2, 0]),
        ("0,7,1", [0]),
        ("1,1", [1]),
        ("GPU-b1", [2]),
        ("GPU-b,0", [2, 0]),
        ("GPU-a", []),
        ("GPU-c,0", []),
    ],
)
def test_the_environment_leaves_what_cuda_would_see(variable: str | None, expected: list[int]) -> None:
    """Up to the first that is none; by number, or by the beginning of a UUID that fits one only."""
    assert chosen(ALL, variable) == [ALL[index] for index in expected]


def test_a_part_of_a_gpu_counts_as_one() -> None:
    assert [gpu.uuid for gpu in chosen(ALL, "MIG-1,MIG-2")] == ["MIG-1", "MIG-2"]


def test_the_kernels_list_is_in_the_order_of_the_bus(tmp_path: Path) -> None:
    """A container may lack the management library."""
    for place, uuid in (("0000:c1:00.0", "GPU-b"), ("0000:19:00.0", "GPU-a")):
        (tmp_path / place).mkdir()
        text = f"Model: \t\t NVIDIA H200\nIRQ:   \t\t 77\nGPU UUID: \t {uuid}\nBus Location: \t {place}\n"
        (tmp_path / place / "information").write_text(text)
    assert listed_gpus(tmp_path) == [Gpu("GPU-a", "NVIDIA H200"), Gpu("GPU-b", "NVIDIA H200")]
    assert listed_gpus(tmp_path / "none") == []


def _num_gpus() -> int:
    try:
        return len(gpus.visible_gpus())
    except NoDriverError:
        return 0


def test_a_gpu_that_is_not_here_is_an_error() -> None:
    pytest.importorskip("nvidia.dali")
    index = _num_gpus()
    with pytest.raises(SpecError, match=rf"device='cuda:{index}': expected (a GPU, found none|one of cuda:0)"):
        backend.check(Backend(device=f"cuda:{index}"))
    assert gpus.used_bytes(index) is None


def test_hidden_gpus_are_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nvidia.dali")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(
        SpecError, match=r"device='cuda': expected a GPU, found none.*(driver|CUDA_VISIBLE_DEVICES='-1')"
    ):
        backend.check(Backend(device="cuda"))


def test_a_gpu_that_nobody_would_use_is_an_error() -> None:
    with pytest.raises(SpecError, match=r"device='cuda:0': the back-end 'cpu' uses no GPU"):
        backend.check(Backend("cpu", "cuda:0"))


@pytest.mark.parametrize("package", ["nvidia", "nvidia.dali"])
@pytest.mark.parametrize("asked", [Backend("dali"), Backend("auto", "cuda:0")], ids=["dali", "auto with a GPU"])
def test_without_dali_the_extra_is_named(asked: Backend, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def spec_of(name: str) -> None:
        if package == "nvidia":
            raise ModuleNotFoundError(f"No module named {package!r}")

    monkeypatch.setattr("importlib.util.find_spec", spec_of)
    with pytest.raises(MissingDependencyError, match=r"stoker\[dali\]"):
        backend.check(asked)


def test_what_is_shown_is_what_makes_the_samples() -> None:
    pytest.importorskip("nvidia.dali")
    assert backend.shown(Backend()) == ("cpu", "cpu")
    assert backend.shown(Backend("dali")) == ("dali", "cpu")
    assert backend.shown(Backend(device="cuda")) == ("dali", "cuda:0")
    assert backend.shown(Backend("dali", "cuda:3")) == ("dali", "cuda:3")


def test_the_gpus_go_round() -> None:
    """Only cuda does: what names one GPU is left alone."""
    num_gpus = max(1, _num_gpus())
    assert [backend.spread("cuda", index) for index in range(5)] == [f"cuda:{index % num_gpus}" for index in range(5)]
    assert backend.spread("cuda:1", 7) == "cuda:1"
    assert backend.spread("cpu", 7) == "cpu"
