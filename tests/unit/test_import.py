"""``import stoker`` is light, and its public names are what they are said to be."""

from __future__ import annotations

import subprocess
import sys

import pytest

import stoker


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


def test_a_service_needs_no_torch() -> None:
    """Where torch is not installed, everything that a service runs is there all the same."""
    script = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "torchvision"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTorch())
import stoker_service.cli
import stoker_service.client.session
import stoker_service.dispatcher.server
import stoker_service.worker.server
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
