"""``import stoker`` is light, and its public names are what they are said to be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import stoker
from support.shards import make_shards


def modules_after(code: str) -> set[str]:
    """The modules that a new interpreter has loaded after this code."""
    script = f"{code}\nimport sys; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_importing_loads_nothing_heavy() -> None:
    loaded = modules_after("import stoker")
    heavy = {"torch", "pyarrow", "nvidia", "numpy", "pydantic", "obstore", "fsspec", "cv2", "PIL", "grpc"}
    assert "stoker" in loaded
    assert not {name.partition(".")[0] for name in loaded} & heavy


def test_describing_a_pipeline_loads_no_decoder_and_no_store() -> None:
    loaded = modules_after("import stoker; stoker.Pipeline.preset('imagenet_train', 'x.tar', batch_size=2)")
    assert not {name.partition(".")[0] for name in loaded} & {"torch", "cv2", "PIL", "nvidia", "obstore", "simplejpeg"}
    assert not loaded & {"pyarrow.flight", "pyarrow.dataset"}


def test_the_public_names_are_there_and_sorted() -> None:
    assert stoker.__all__ == sorted(stoker.__all__)
    for name in stoker.__all__:
        assert getattr(stoker, name) is not None
    assert dir(stoker) == stoker.__all__


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Loader'"):
        _ = stoker.Loader


WITHOUT_TORCH = """
import sys
from importlib.machinery import PathFinder

class NoTorch(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        is_torch = name.partition(".")[0] in ("torch", "torchvision")
        return None if is_torch else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = NoTorch
import stoker_service.cli
import stoker_service.client.session
import stoker_service.dispatcher.server
import stoker_service.worker.server
import stoker
from stoker import ops

steps = [ops.DecodeImage("jpg", to="image"), ops.RandomResizedCrop("image", 24), ops.Label("cls")]
pipeline = stoker.Pipeline(stoker.tar(sys.argv[1]), steps, batch_size=4)
with stoker.DataLoader(pipeline, rank=0, world_size=1, output="numpy") as loader:
    print(sum(len(batch["cls"]) for batch in loader))
"""


def test_a_service_needs_no_torch(tmp_path: Path) -> None:
    """Where torch is not installed, what a service imports at its start and while it makes batches is there."""
    shard = make_shards(tmp_path, [8])[0]
    command = [sys.executable, "-c", WITHOUT_TORCH, str(shard)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["8"]
