"""Skips what needs a GPU where there is none, and says so."""

from __future__ import annotations

import functools
import importlib
import importlib.util

import pytest

DEVICE = "cuda:0"


@pytest.fixture(autouse=True)
def gpu() -> str:
    """The GPU's name for torch."""
    missing = _missing_gpu()
    if missing is not None:
        pytest.skip(missing)
    return DEVICE


@pytest.fixture
def dali(gpu: str) -> str:
    """The same, where DALI is installed."""
    missing = _missing_dali()
    if missing is not None:
        pytest.skip(missing)
    return gpu


@functools.cache
def _missing_gpu() -> str | None:
    if not importlib.util.find_spec("torch"):
        return "no GPU: torch cannot be imported"
    torch = importlib.import_module("torch")
    return None if torch.cuda.is_available() else "no GPU: torch.cuda.is_available() is False"


@functools.cache
def _missing_dali() -> str | None:
    try:
        importlib.import_module("nvidia.dali")
    except ImportError as error:
        return f"no DALI: {error}"
    return None
