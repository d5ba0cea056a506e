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
