"""Tensors in the pickles of results; imported only where torch is."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np
import torch

from stoker.processes.results.arrays import PLACED
from stoker.processes.results.outgoing import LARGE_BYTES, Outgoing, address_of

_INTEGERS: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_SHARED: Final = frozenset(["bool", *_INTEGERS, "float16", "float32", "float64", "complex64", "complex128"])
_BITS: Final = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


def _known() -> dict[str, tuple[torch.dtype, np.dtype[Any], bool]]:
    """Name the dtypes whose elements are whole bytes: itself, the NumPy dtype of its bits, whether that is its own."""
    known = {}
    for dtype in {value for value in vars(torch).values() if isinstance(value, torch.dtype)}:
        name = str(dtype).removeprefix("torch.")
        if name in _SHARED:
            known[name] = (dtype, np.dtype(name), True)
        elif name.startswith(("bfloat", "float8", "complex")):
            known[name] = (dtype, np.dtype(_BITS[dtype.itemsize]), False)
    return known


_DTYPES: Final = _known()
_NAMES: Final = {dtype: name for name, (dtype, _, _) in _DTYPES.items()}


def reduce_tensor(tensor: torch.Tensor, out: Outgoing) -> Any:
    """Reduce a tensor to the bytes it shows and its form.

    The order of the dimensions in memory stays, expanded ones included; gaps between elements do not. What is no
    plain tensor of numbers in memory is reduced as torch does. Raises TypeError for tensors of an accelerator, and
    RuntimeError, as torch's own workers, for one that is not a leaf of its graph.
    """
    cls = type(tensor)
    if cls is torch.Tensor and not tensor.__dict__:
        name = _name_of(tensor)
        return NotImplemented if name is None else (build_tensor, _parts(tensor, name, out))
    with torch._C.DisableTorchFunctionSubclass():  # each question to a subclass would go through its Python code
        name = _name_of(tensor)
        if name is None or not _is_ordinary(cls):
            return NotImplemented
        plain = tensor.detach().as_subclass(torch.Tensor)
        parts = _parts(plain, name, out, tensor.requires_grad)
        # what torch itself makes of a subclass, with our own way for the numbers within
        state = torch._utils._get_obj_state(tensor)  # type: ignore[no-untyped-call]
        return torch._tensor._rebuild_from_type_v2, (build_tensor, cls, parts, state)


def _name_of(tensor: torch.Tensor) -> str | None:
    """What we call the tensor's dtype; None if it is not for us. Raises what :func:`reduce_tensor` does."""
    _check(tensor)
    is_other = tensor.layout is not torch.strided or tensor.is_meta or tensor.is_nested
    return None if is_other else _NAMES.get(tensor.dtype)


def _is_ordinary(cls: type[torch.Tensor]) -> bool:
    """Whether a subclass leaves both pickling and memory to torch."""
    return cls.__reduce_ex__ is torch.Tensor.__reduce_ex__ and cls.__torch_dispatch__ is torch.Tensor.__torch_dispatch__


def _check(tensor: torch.Tensor) -> None:
    if not (tensor.is_cpu or tensor.is_meta):
        raise TypeError(
            f"a worker returned a tensor on {tensor.device}: return CPU tensors from workers and move them in the "
            "trainer; pin_memory=True makes that fast"
        )
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "a worker returned a tensor that requires grad and is not a leaf of its graph, which ends at the process: "
            "call .detach() on it"
        )


def _parts(tensor: torch.Tensor, name: str, out: Outgoing, requires_grad: bool | None = None) -> tuple[Any, ...]:
    """What :func:`build_tensor` takes."""
    if requires_grad is None:
        requires_grad = tensor.requires_grad
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.detach().resolve_conj().resolve_neg()
    shape = tuple(tensor.shape)
    num_bytes = tensor.numel() * tensor.itemsize
    address = tensor.data_ptr()
    if not num_bytes:
        return b"", name, shape, tensor.stride(), requires_grad
    if not address:  # zeros that are nowhere
        tensor = tensor.detach().clone()
        address = tensor.data_ptr()
    strides = None
    if not tensor.is_contiguous() or 1 in shape:  # where a size is 1, any stride is contiguous: channels_last
        strides = tensor.stride()
        reach = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        if reach <= tensor.numel():
            num_bytes = reach * tensor.itemsize
        else:
            strides = None
            if num_bytes >= LARGE_BYTES:
                return _copied(tensor, name, num_bytes, out, requires_grad)
            tensor = tensor.detach().contiguous()
            address = tensor.data_ptr()
    if num_bytes < LARGE_BYTES:
        return bytearray(ctypes.string_at(address, num_bytes)), name, shape, strides, requires_grad
    out.add(address, num_bytes, tensor.untyped_storage())
    return PLACED, name, shape, strides, requires_grad


def _copied(tensor: torch.Tensor, name: str, num_bytes: int, out: Outgoing, requires_grad: bool) -> tuple[Any, ...]:
    """Close the gaps of a large tensor on the way into the arena."""
    room = out.room(num_bytes)
    torch.from_numpy(room).view(tensor.dtype).view(tensor.shape).copy_(tensor.detach())
    out.add(address_of(room), num_bytes, room)
    return PLACED, name, tuple(tensor.shape), None, requires_grad


def build_tensor(
    place: Any, name: str, shape: tuple[int, ...], strides: tuple[int, ...] | None, requires_grad: bool
) -> torch.Tensor:
    """Make the tensor that :func:`reduce_tensor` took apart, over the memory of ``place``."""
    dtype, bits, is_own = _DTYPES[name]
    if not len(place):
        tensor = torch.empty_strided(shape, strides or (), dtype=dtype)
    else:
        if strides is not None:
            strides = tuple([stride * bits.itemsize for stride in strides])
        tensor = torch.from_numpy(np.ndarray(shape, bits, place, 0, strides))
        if not is_own:
            tensor = tensor.view(dtype)
    return tensor.requires_grad_() if requires_grad else tensor
