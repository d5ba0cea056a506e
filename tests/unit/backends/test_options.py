"""Backend: what is asked for, and what it means."""

from __future__ import annotations

import importlib.util
import pickle
from typing import Any

import pytest

import stoker
from stoker import Backend, ops
from stoker.backends.options import as_backend
from stoker.backends.registry import backend_name, compile_ops
from stoker.errors import SpecError


@pytest.mark.parametrize(
    "wrong, text",
    [
        ({"name": "tpu"}, "known: auto, cpu, dali"),
        ({"device": "gpu"}, "expected cpu, cuda, or cuda:"),
        ({"device": "cuda:x"}, "expected cpu, cuda, or cuda:"),
        ({"placement": "dsp"}, "expected one of auto, cpu, mixed, gpu"),
        ({"placement": {"DecodeImage": "dsp"}}, "expected one of auto, cpu, mixed, gpu"),
        ({"placement": {"Normalise": "cpu"}}, "no op is named 'Normalise'"),
        ({"placement": {"DecodeImage": "mixed"}}, 'give device="cuda:0"'),
        ({"rows": -1}, "rows is -1"),
        ({"device_bytes": 0}, "device_bytes is 0"),
        ({"device_bytes": "2GiB"}, "device_bytes is '2GiB'; expected a whole number"),
        ({"name": "cpu", "device": "cuda:0"}, "uses no GPU"),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        Backend(**wrong)


def test_places_are_those_asked_for() -> None:
    everywhere = Backend("dali", device="cuda:1")
    assert everywhere.place_of("DecodeImage") == "mixed"
    assert everywhere.device_index == 1
    some = Backend("dali", device="cuda", placement={"DecodeImage": "cpu", "Normalize": "gpu"})
    assert [some.place_of(op) for op in ("DecodeImage", "Normalize", "Resize")] == ["cpu", "gpu", "mixed"]
    assert Backend("dali").place_of("DecodeImage") == "cpu"
    assert some.rows_together > Backend("dali").rows_together
    assert Backend(rows=3).rows_together == 3


def test_auto_is_dali_only_where_a_gpu_is_given() -> None:
    assert backend_name(Backend()) == "cpu"
    assert backend_name(Backend(device="cuda")) == ("dali" if importlib.util.find_spec("nvidia.dali") else "cpu")
    assert as_backend("dali").name == "dali"


def test_it_travels_to_worker_processes() -> None:
    backend = Backend("dali", device="cuda:0", placement={"DecodeImage": "mixed"}, rows=5)
    assert pickle.loads(pickle.dumps(backend)) == backend


def test_it_is_no_part_of_the_pipeline() -> None:
    """Two jobs that differ in it share batches, and a state of one fits the other."""
    chain = [ops.DecodeImage("image"), ops.RandomResizedCrop("image", 8)]
    cpu, dali = compile_ops(chain, "cpu"), compile_ops(chain, "dali")
    assert cpu.num_uniforms == dali.num_uniforms
    assert stoker.Backend is Backend


def test_numbers_before_a_cache_are_made_by_cpu_on_every_back_end() -> None:
    chain = [ops.DecodeImage("image"), ops.Resize("image", 8), ops.Cache(), ops.CenterCrop("image", 4)]
    cpu, dali = compile_ops(chain, "cpu"), compile_ops(chain, "dali")
    names = [[kernel.__module__ for _, kernel in program.kernels] for program in (cpu, dali)]
    assert names[0][:2] == names[1][:2]
    assert names[1][2] == "stoker.backends.dali.kernels"
