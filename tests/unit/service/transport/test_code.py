"""Users' functions travel by value, and what cannot travel is named at once."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import stoker
import stoker_proto
import stoker_service
from stoker import Pipeline, ops
from stoker.code.by_value import is_users
from stoker.errors import SpecError
from stoker_proto.v1 import stream_pb2
from stoker_service.transport.code import pack, unpack

FACTOR = 3
LOCK = threading.Lock()

RECEIVER = """
import sys
from stoker_proto.v1 import stream_pb2
from stoker_service.transport.code import unpack
pipeline = unpack(stream_pb2.Pipeline.FromString(sys.stdin.buffer.read()), allow_code=True)
print(pipeline.ops[0].fn({"x": 2}), pipeline.fingerprint)
"""


def pipeline_of(fn: Any, **options: Any) -> Pipeline:
    source = stoker.tar("s3://bucket/{0..3}.tar", storage_options=options or None)
    return Pipeline(source, [ops.Map(fn, seed_globals=False)], batch_size=2)


def sent(fn: Any) -> Pipeline:
    """The pipeline as the worker sees it."""
    wire = pack(pipeline_of(fn)).SerializeToString()
    return unpack(stream_pb2.Pipeline.FromString(wire), allow_code=True)


def received_elsewhere(fn: Any) -> tuple[str, str]:
    """What the function makes of 2 in a process that has none of the test's modules; the fingerprint it sees."""
    packages = (stoker, stoker_service, stoker_proto)
    path = os.pathsep.join(str(Path(next(iter(package.__path__))).parent) for package in packages)
    found = subprocess.run(
        [sys.executable, "-c", RECEIVER],
        input=pack(pipeline_of(fn)).SerializeToString(),
        capture_output=True,
        check=False,
        timeout=60,
        cwd="/",
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYTHONPATH": path},
    )
    assert found.returncode == 0, found.stderr.decode()
    result, fingerprint = found.stdout.decode().rsplit(maxsplit=1)
    return result, fingerprint


def times(fields: dict[str, Any]) -> dict[str, Any]:
    """A function of this module, with a global."""
    return {"x": fields["x"] * FACTOR}


def scaled(fields: dict[str, Any], by: int, offset: int = 0) -> dict[str, Any]:
    """A function for partial."""
    return {"x": fields["x"] * by + offset}


class Scale:
    """An object that is called."""

    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {"x": fields["x"] * self.by}

    def method(self, fields: dict[str, Any]) -> dict[str, Any]:
        return self(fields)


def closure_over(value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function with ``value`` in its closure."""

    def closure(fields: dict[str, Any]) -> dict[str, Any]:
        return {"x": fields["x"] * value}

    return closure


def local_instance() -> Any:
    class Local:
        factor = 3

        def __call__(self, fields: dict[str, Any]) -> dict[str, Any]:
            return {"x": fields["x"] * self.factor}

    return Local()


def test_a_pipeline_without_functions_is_json() -> None:
    pipeline = Pipeline(stoker.tar("s3://b/0.tar"), [ops.DecodeImage("jpg")], batch_size=2)
    wire = pack(pipeline)
    assert not wire.code
    assert unpack(wire, allow_code=False) == pipeline
    assert wire.fingerprint == pipeline.fingerprint


SENDABLE: dict[str, Any] = {
    "lambda": lambda fields: {"x": fields["x"] * 3},
    "module": times,
    "closure": closure_over(3),
    "array": closure_over(np.array(3)),
    "local-instance": local_instance(),
    "instance": Scale(3),
    "method": Scale(3).method,
    "partial": functools.partial(scaled, by=2, offset=2),
}


@pytest.mark.parametrize("name", SENDABLE)
def test_functions_run_where_their_modules_are_not(name: str) -> None:
    result, fingerprint = received_elsewhere(SENDABLE[name])
    assert result == "{'x': 6}" or name == "array"
    if name != "local-instance":  # cloudpickle forgets in which function a class was made: the message's word counts
        assert fingerprint == pack(pipeline_of(SENDABLE[name])).fingerprint


@pytest.fixture
def users_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package of modules that refer to one another."""
    folder = tmp_path / "usercode_of_test"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "factors.py").write_text("FACTOR = 3\ndef factor():\n    return FACTOR\n")
    (folder / "maps.py").write_text(
        "import json\nimport usercode_of_test.factors\nfrom usercode_of_test import factors as known\n"
        "from usercode_of_test.factors import factor\n"
        "def by_name(fields):\n    return {'x': fields['x'] * factor()}\n"
        "def by_module(fields):\n    return {'x': fields['x'] * known.factor()}\n"
        "def by_package(fields):\n    return {'x': fields['x'] * usercode_of_test.factors.FACTOR}\n"
        "class Map:\n    def __call__(self, fields):\n        return json.loads(json.dumps(by_name(fields)))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield "usercode_of_test.maps"
    for name in [name for name in sys.modules if name.startswith("usercode_of_test")]:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["by_name", "by_module", "by_package", "Map"])
def test_the_users_modules_go_with_them(users_package: str, name: str) -> None:
    found = getattr(importlib.import_module(users_package), name)
    assert received_elsewhere(found() if isinstance(found, type) else found)[0] == "{'x': 6}"


def test_what_is_installed_goes_by_name() -> None:
    assert not any(map(is_users, (np, os, cloudpickle, stoker, stoker_service, sys, pytest)))
    assert is_users(sys.modules[__name__])
    assert len(pack(pipeline_of(np.copy)).code) < 2000


def test_the_register_of_cloudpickle_is_left_as_it_was() -> None:
    before = cloudpickle.list_registry_pickle_by_value()
    pack(pipeline_of(times))
    assert cloudpickle.list_registry_pickle_by_value() == before
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        pack(pipeline_of(times))
        assert cloudpickle.list_registry_pickle_by_value() == before | {__name__}
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


class Holder:
    """Holds what cannot be sent."""

    def __init__(self, part: Any) -> None:
        self.config = {"parts": [1, part]}

    def __call__(self, fields: dict[str, Any]) -> dict[str, Any]:
        return fields


class Stubborn:
    """Refuses by itself, with an error of its own."""

    def __reduce__(self) -> Any:
        raise LookupError("stays at home")


def uses_lock(fields: dict[str, Any]) -> dict[str, Any]:
    """A function with a global that cannot be sent."""
    with LOCK:
        return fields


def counted() -> Iterator[int]:
    yield 1


def refusal_of(fn: Any) -> str:
    start_s = time.monotonic()
    with pytest.raises(SpecError) as caught:
        pack(pipeline_of(fn))
    assert time.monotonic() - start_s < 1
    return str(caught.value)


def test_an_open_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    with (tmp_path / "f").open() as texts, (tmp_path / "f").open("rb") as handle:
        text = refusal_of(closure_over(handle))
        assert text.startswith("Map(")
        assert ".closure 'value' (_io.BufferedReader) cannot be sent to a worker: " in text
        assert "open it inside the function" in text
        assert ".closure 'value' (_io.TextIOWrapper)" in refusal_of(closure_over(texts))


def test_the_innermost_part_is_named() -> None:
    lock: Any = threading.Lock()
    assert ".config['parts'][1] (_thread.lock) cannot be sent" in refusal_of(Holder(lock))
    assert ".closure 'value'.config['parts'][1] (_thread.lock)" in refusal_of(closure_over(Holder(lock)))
    assert ".self.config['parts'][1] (_thread.lock)" in refusal_of(Holder(lock).__call__)
    assert ".argument 'by' (_thread.lock)" in refusal_of(functools.partial(scaled, by=lock))
    assert ".argument 0 (_thread.lock)" in refusal_of(functools.partial(scaled, lock))
    assert ".global 'LOCK' (_thread.lock)" in refusal_of(uses_lock)
    assert ".default 0 (_thread.lock)" in refusal_of(lambda fields, lock=lock: fields)


def test_a_generator_is_named_with_what_to_do() -> None:
    text = refusal_of(closure_over(counted()))
    assert ".closure 'value' (generator)" in text
    assert "give a list" in text


def test_a_value_that_refuses_by_itself_is_named_with_its_reason() -> None:
    assert "Stubborn) cannot be sent to a worker: stays at home" in refusal_of(closure_over([Stubborn()]))


def test_the_op_that_is_in_the_way_is_named() -> None:
    steps = [ops.Map(times), ops.Filter(closure_over(threading.Lock()))]
    with pytest.raises(SpecError, match=r"^Filter\(.*closure 'value'"):
        pack(Pipeline(stoker.tar("s3://b/0.tar"), steps, batch_size=2))


def test_code_is_not_read_where_it_is_not_allowed() -> None:
    wire = pack(pipeline_of(times))
    with pytest.raises(SpecError, match="--allow-code"):
        unpack(wire, allow_code=False)
    named = stream_pb2.Pipeline(json=pipeline_of(os.path.join).to_json())
    with pytest.raises(SpecError, match="allow_code"):
        unpack(named, allow_code=False)


def test_code_of_another_python_is_refused_before_it_is_read() -> None:
    wire = pack(pipeline_of(times))
    wire.code = b"stoker-code 3.1\n" + b"not a pickle"
    with pytest.raises(SpecError, match=r"come from Python 3\.1 and this worker runs"):
        unpack(wire, allow_code=True)
    wire.code = b"\x80\x05."
    with pytest.raises(SpecError, match="in a form that this worker does not know"):
        unpack(wire, allow_code=True)


def test_what_the_worker_lacks_is_named() -> None:
    wire = pack(pipeline_of(times))
    head, _, _ = wire.code.partition(b"\n")
    wire.code = head + b"\nccertainly_not_there\nf\n."
    with pytest.raises(SpecError, match=r"certainly_not_there.*install it there"):
        unpack(wire, allow_code=True)
    wire.code = head + b"\n\x80\x05junk"
    with pytest.raises(SpecError, match="cannot be read at the worker"):
        unpack(wire, allow_code=True)
    wire.code = head + b"\nN."
    with pytest.raises(SpecError, match="not a pipeline but a NoneType"):
        unpack(wire, allow_code=True)


def test_secrets_stay_behind() -> None:
    pipeline = pipeline_of(times, secret_access_key="hunter2", region="eu-west-1")
    wire = pack(pipeline)
    assert b"hunter2" not in wire.SerializeToString()
    found = unpack(wire, allow_code=True)
    assert found.source.storage_options == {"region": "eu-west-1"}
    assert found.fingerprint == pipeline.fingerprint


def test_large_side_data_travel() -> None:
    table = dict.fromkeys(range(100_000), "x" * 50)
    found = sent(lambda fields: {"x": table[fields["x"]]})
    step = found.ops[0]
    assert isinstance(step, ops.Map)
    assert step.fn({"x": 99_999}) == {"x": "x" * 50}
