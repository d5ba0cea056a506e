"""Whether two results are the same to whoever gets them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def assert_same(found: Any, expected: Any) -> None:
    """Compare types, dtypes, shapes, bits and order, through all that results are nested in."""
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        _assert_same_tensors(found, expected)
    elif isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.flags.writeable == expected.flags.writeable
        np.testing.assert_array_equal(found, expected, strict=True)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert_same(found[key], value)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif hasattr(expected, "__dict__"):
        assert_same(vars(found), vars(expected))
    else:
        assert found == expected or (found != found and expected != expected)  # noqa: PLR0124  # NaN


def _assert_same_tensors(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert (found.dtype, found.shape, found.layout) == (expected.dtype, expected.shape, expected.layout)
    assert (found.device, found.requires_grad) == (expected.device, expected.requires_grad)
    assert vars(found).keys() == vars(expected).keys()
    if expected.is_meta:
        return
    if expected.layout is torch.strided and not expected.is_quantized:
        bits = bits_of(found), bits_of(expected)
        assert torch.equal(*bits)
    else:
        assert torch.equal(found.to_dense(), expected.to_dense()) if not expected.is_quantized else True
        if expected.is_quantized:
            assert torch.equal(found.dequantize(), expected.dequantize())


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor's elements, so that NaN equals NaN and -0.0 does not equal 0.0."""
    plain = tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg().clone()
    return plain.contiguous().reshape(-1).view(torch.uint8)
