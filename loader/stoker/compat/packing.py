"""Tensors, arrays and states of generators as JSON values."""

from __future__ import annotations

import base64
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

_TAG: Final = "!"

# torch's CPU generator: 24 bytes of header, 624 words of 32 bits in 64 each, 40 bytes about normal numbers.
_TORCH_STATE_BYTES: Final = 5056
_WORDS: Final = slice(3, 627)


def pack(value: Any) -> Any:  # noqa: PLR0911  # a case a line reads best
    """A value as JSON values, as far as it is made of plain values, lists, tuples, dicts, bytes, arrays and tensors.

    Copies what could be changed later. Anything else stays as it is: then the whole is not JSON, but can be pickled.
    """
    kind = type(value)
    if kind is list:
        return [pack(part) for part in value]
    if kind is dict:
        if all(type(key) is str for key in value) and _TAG not in value:
            return {key: pack(part) for key, part in value.items()}
        return {_TAG: "dict", "of": [[pack(key), pack(part)] for key, part in value.items()]}
    if kind is tuple:
        return {_TAG: "tuple", "of": [pack(part) for part in value]}
    if kind is bytes:
        return {_TAG: "bytes", "of": _text(value)}
    if isinstance(value, np.generic) and not value.dtype.hasobject:
        return pack(value.item())
    if kind is np.ndarray and value.dtype.kind in "biufc":
        return _pack_array(value)
    if kind is torch.Tensor and value.layout == torch.strided and value.device.type == "cpu":
        return _pack_tensor(value)
    return value


def unpack(value: Any) -> Any:  # noqa: PLR0911  # the same
    """The value that :func:`pack` took. Runs no code of the value's."""
    if isinstance(value, list):
        return [unpack(part) for part in value]
    if not isinstance(value, dict):
        return value
    match value.get(_TAG):
        case None:
            return {key: unpack(part) for key, part in value.items()}
        case "dict":
            return {unpack(key): unpack(part) for key, part in value["of"]}
        case "tuple":
            return tuple(unpack(part) for part in value["of"])
        case "bytes":
            return base64.b64decode(value["of"])
        case "array":
            return _unpack_array(value)
        case "tensor":
            return torch.from_numpy(_unpack_array(value)).view(getattr(torch, value["is"])).reshape(value["shape"])
        case "mt19937":
            return _unpack_generator(base64.b64decode(value["of"]))
        case other:
            raise ValueError(f"a packed value of unknown kind {other!r}")


def _text(octets: bytes) -> str:
    return base64.b64encode(octets).decode("ascii")


def _pack_array(array: NDArray[Any]) -> dict[str, Any]:
    return {_TAG: "array", "dtype": array.dtype.str, "shape": list(array.shape), "of": _text(array.tobytes())}


def _unpack_array(value: dict[str, Any]) -> NDArray[Any]:
    octets = bytearray(base64.b64decode(value["of"]))
    return np.frombuffer(octets, dtype=np.dtype(value["dtype"])).reshape(value.get("flat", value["shape"]))


def _pack_tensor(tensor: torch.Tensor) -> dict[str, Any]:
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    if flat.numel() == _TORCH_STATE_BYTES and (words := _narrow(flat.numpy())) is not None:
        return {_TAG: "mt19937", "of": _text(words)}
    octets = flat.numpy().tobytes()
    return {
        _TAG: "tensor",
        "is": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "dtype": "|u1",
        "flat": [len(octets)],
        "of": _text(octets),
    }


def _narrow(state: NDArray[np.uint8]) -> bytes | None:
    """A generator's state without the upper halves of its words, which are empty; None if they are not."""
    words = np.frombuffer(state.tobytes(), dtype=np.uint64)
    low = words[_WORDS].astype(np.uint32)
    if (low != words[_WORDS]).any():
        return None
    return words[: _WORDS.start].tobytes() + low.tobytes() + words[_WORDS.stop :].tobytes()


def _unpack_generator(octets: bytes) -> torch.Tensor:
    words = np.empty(_TORCH_STATE_BYTES // 8, dtype=np.uint64)
    header_bytes, num_words = _WORDS.start * 8, _WORDS.stop - _WORDS.start
    words[: _WORDS.start] = np.frombuffer(octets[:header_bytes], dtype=np.uint64)
    words[_WORDS] = np.frombuffer(octets, dtype=np.uint32, count=num_words, offset=header_bytes)
    words[_WORDS.stop :] = np.frombuffer(octets[header_bytes + 4 * num_words :], dtype=np.uint64)
    return torch.from_numpy(words.view(np.uint8))
