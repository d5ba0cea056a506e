"""Pipelines on their way to a worker, users' functions included."""

from __future__ import annotations

import dataclasses
import pickle
import sys
from typing import Any, Final

from stoker.code.blame import blame
from stoker.code.by_value import dumps
from stoker.errors import SpecError
from stoker.formats import source as sources
from stoker.ops.functions import FunctionOp
from stoker.pipeline import Pipeline
from stoker_proto.v1 import stream_pb2

PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Pickles that hold code are read by the same version only: bytecode of another one can crash."""

_MARK: Final = b"stoker-code "


def pack(pipeline: Pipeline) -> stream_pb2.Pipeline:
    """Return the pipeline as JSON, or, where it holds users' functions, by value with the users' modules they need.

    Secret storage options stay behind, as in :meth:`Pipeline.to_json`. Raises SpecError, at once, for a function that
    cannot be sent; it names the op, the variable or attribute that is in the way, its type and what to do.
    """
    if not any(op.is_code for op in pipeline.ops):
        return stream_pb2.Pipeline(fingerprint=pipeline.fingerprint, json=pipeline.to_json())
    source = sources.from_json(sources.to_json(pipeline.source))
    try:
        code = dumps(dataclasses.replace(pipeline, source=source))
    except Exception as error:  # a user's __reduce__ and __getstate__ may raise anything
        raise SpecError(_refusal(pipeline, error)) from error
    return stream_pb2.Pipeline(fingerprint=pipeline.fingerprint, code=_MARK + PYTHON.encode() + b"\n" + code)


def unpack(message: stream_pb2.Pipeline, *, allow_code: bool) -> Pipeline:
    """Return the pipeline of a message. Reading functions runs code: nothing is read unless ``allow_code`` is set.

    Raises SpecError if it is not, if the functions come from another Python version, or need what is not here.
    """
    if not message.code:
        return Pipeline.from_json(message.json, allow_code=allow_code)
    if not allow_code:
        raise SpecError(_not_allowed("the pipeline holds functions; reading them"))
    head, _, code = message.code.partition(b"\n")
    if not head.startswith(_MARK):
        raise SpecError("the pipeline's functions are in a form that this worker does not know: use one release")
    python = head.removeprefix(_MARK).decode("ascii", "replace")
    if python != PYTHON:
        raise SpecError(
            f"the pipeline's functions come from Python {python} and this worker runs Python {PYTHON}: "
            "use one version on both sides, or ops without functions"
        )
    return _loaded(code)


def check_dataset(python: str, *, allow_code: bool) -> None:
    """Raise SpecError if a torch dataset, pickled by Python ``python``, is not to be read here."""
    if not allow_code:
        raise SpecError(_not_allowed("the job has a torch dataset; reading it"))
    if python != PYTHON:
        raise SpecError(
            f"the dataset comes from Python {python or 'of an unknown version'} and this worker runs Python {PYTHON}: "
            "use one version on both sides"
        )


def _not_allowed(what: str) -> str:
    return (
        f"{what} runs code, and this worker does not allow that: start it with --allow-code if all who reach it may "
        "run code there"
    )


def _loaded(code: bytes) -> Pipeline:
    try:
        found: Any = pickle.loads(code)
    except ImportError as error:
        raise SpecError(
            f"the pipeline's functions need what is not installed at the worker: {error}; install it there"
        ) from error
    except Exception as error:  # users' code runs here
        raise SpecError(
            f"the pipeline's functions cannot be read at the worker: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, Pipeline):
        raise SpecError(f"not a pipeline but a {type(found).__name__}")
    return found


def _refusal(pipeline: Pipeline, error: Exception) -> str:
    for op in pipeline.ops:
        if isinstance(op, FunctionOp) and (found := blame(op.fn)) is not None:
            return (
                f"{op.label}{found.path} ({found.type_name}) cannot be sent to a worker: {found.reason}; {found.remedy}"
            )
    return f"the pipeline cannot be sent to a worker: {type(error).__name__}: {error}"
