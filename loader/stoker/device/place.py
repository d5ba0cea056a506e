"""Which device batches are wanted on, checked before anything is opened."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from stoker.errors import MissingDependencyError, SpecError


def find_place(device: Any) -> str:
    """The name of what torch calls ``device``: ``"cpu"`` or ``"cuda:1"``; ``"cuda"`` is the process's current GPU.

    Raises SpecError for a device that is unknown, of another kind, or not there.
    """
    if not importlib.util.find_spec("torch"):
        raise MissingDependencyError(f"device={device!r} needs PyTorch: pip install 'stoker[torch]'")
    torch: Any = importlib.import_module("torch")
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise SpecError(f"device is {device!r}; expected cpu, cuda, cuda: and a number, or a torch.device") from None
    if found.type == "cpu":
        return "cpu"
    if found.type != "cuda":
        raise SpecError(
            f"device is {str(found)!r}; batches are brought to cpu or cuda; leave it out, and copy them yourself"
        )
    if not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        raise SpecError(
            f"device is {str(found)!r}, and torch finds no CUDA device (torch {torch.__version__}, {built}); see what "
            "nvidia-smi says and CUDA_VISIBLE_DEVICES hides, or leave device out"
        )
    index, count = found.index, torch.cuda.device_count()
    if index is not None and index >= count:
        raise SpecError(f"device is {str(found)!r}; there are {count} CUDA devices, from cuda:0 to cuda:{count - 1}")
    return f"cuda:{torch.cuda.current_device() if index is None else index}"
