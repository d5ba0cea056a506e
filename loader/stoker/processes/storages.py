"""The memory of torch tensors as bytes."""

from __future__ import annotations

import pickle
import sys
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from stoker.processes.raw_memory import bytes_at

if TYPE_CHECKING:
    import torch

_COPIED_BYTES: Final = 4096

Storage: TypeAlias = "torch.UntypedStorage"


class DeviceError(pickle.PicklingError):
    """A tensor is not the CPU's."""


def storage_types() -> tuple[type, ...]:
    """What to ask :func:`untyped` about; none where nobody has imported torch."""
    torch = sys.modules.get("torch")
    return () if torch is None else (torch.UntypedStorage, torch.storage.TypedStorage)


def untyped(storage: Any) -> tuple[Storage, Any]:
    """The storage without its dtype; the dtype, None if it has none."""
    import torch

    if isinstance(storage, torch.UntypedStorage):
        found, dtype = storage, None
    else:
        found, dtype = storage._untyped_storage, storage.dtype
    if found.device.type != "cpu":
        raise DeviceError(f"it lies on the device {found.device}")
    return found, dtype


def content_of(storage: Storage) -> memoryview:
    """The bytes of a storage of the CPU."""
    size = storage.nbytes()
    return bytes_at(storage.data_ptr(), size, owner=storage).data if size else memoryview(b"")


def make_storage(content: memoryview) -> Storage:
    """A storage over the bytes, which must be writable; a small one has a copy, which can be resized."""
    import torch

    if len(content) > _COPIED_BYTES:
        found = torch.frombuffer(content, dtype=torch.uint8).untyped_storage()
    else:
        found = torch.UntypedStorage(len(content))  # type: ignore[no-untyped-call]
        if len(content):
            content_of(found)[:] = np.frombuffer(content, np.uint8).data
    return found


def with_dtype(storage: Storage, dtype: Any) -> Any:
    """The storage as it was pickled."""
    import torch

    if dtype is None:
        return storage
    return torch.storage.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)  # type: ignore[no-untyped-call]


def rebuild_tensor(storage: Any, *rest: Any) -> Any:
    """Stands for torch's ``_rebuild_tensor_v3``: that is pickled with one kind of storage, and reads the other."""
    import torch

    typed = with_dtype(storage, torch.uint8) if isinstance(storage, torch.UntypedStorage) else storage
    return torch._utils._rebuild_tensor_v3(typed, *rest)  # type: ignore[no-untyped-call]


def check_sparse_tensors() -> None:
    """Let torch check the sparse tensors that were unpickled: it keeps them all until somebody asks for that."""
    if (torch := sys.modules.get("torch")) is not None:
        torch._utils._validate_loaded_sparse_tensors()
