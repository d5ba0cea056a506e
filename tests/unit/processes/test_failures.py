"""Exceptions that went to another process and back."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
import textwrap
import threading
from typing import Any, NoReturn

import pytest

from stoker.processes.failures import add_note, error_of, failure_of


class _TwoArgumentsError(Exception):
    def __init__(self, path: str, code: int) -> None:
        super().__init__(f"{path} gave {code}")
        self.path = path
        self.code = code


class _ByKeywordError(Exception):
    def __init__(self, *, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _GrowsError(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(f"grown {text}")


class _OwnReduceError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code

    def __reduce__(self) -> Any:
        return _OwnReduceError, (self.code,)


class _RaisesWhenPickledError(Exception):
    def __reduce__(self) -> NoReturn:
        raise OSError("no")


class _RaisesWhenLoadedError(Exception):
    def __setstate__(self, state: Any) -> NoReturn:
        raise OSError("no")


class _SlottedError(Exception):
    __slots__ = ("place",)

    def __init__(self, place: int) -> None:
        super().__init__("slotted")
        self.place = place


class _OfTheSystemError(OSError):
    def __init__(self, path: str) -> None:
        super().__init__(2, "not there", path)
        self.extra = path * 2


@dataclasses.dataclass(frozen=True)
class _FrozenError(Exception):
    place: int


class _NoTextError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def _raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001  # any
        return caught


def _sent(error: BaseException) -> BaseException:
    return error_of(failure_of(_raised(error), "In worker 1 (pid 5), while fetching batch 3"))


_ORDINARY = [
    ValueError("bad", 3),
    KeyError("a key\nwith a new line"),
    KeyError(("x", 1)),
    IndexError(),
    FileNotFoundError(2, "No such file", "/data/x"),
    OSError("only text"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ImportError("nothing", name="there", path="/x"),
    StopIteration(4),
    _TwoArgumentsError("/data/y", 4),
    _ByKeywordError(reason="because"),
    _GrowsError("once"),
    _OwnReduceError(7),
    _OfTheSystemError("/data/z"),
    ExceptionGroup("several", [ValueError("one"), KeyError("two")]),
]


@pytest.mark.parametrize("error", _ORDINARY, ids=lambda error: type(error).__name__)
def test_type_args_text_and_attributes_are_kept(error: Exception) -> None:
    found = _sent(error)
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert repr(found) == repr(error)
    if not isinstance(error, ExceptionGroup):
        assert found.args == error.args
        assert {name: value for name, value in vars(found).items() if name != "__notes__"} == vars(error)
    for name in ("errno", "strerror", "filename", "name", "path", "start", "value"):
        assert getattr(found, name, None) == getattr(error, name, None)


def test_the_trace_is_a_note_that_says_whose_it_is() -> None:
    error = ValueError("bad")
    error.add_note("sample index 17")
    found = _sent(error)
    first, second = found.__notes__
    assert first == "sample index 17"
    assert second.startswith("In worker 1 (pid 5), while fetching batch 3:\nTraceback (most recent call last):")
    assert "raise error" in second
    assert "sample index 17" not in second
    assert second.rstrip().endswith("ValueError: bad")


def test_slots_are_kept() -> None:
    found = _sent(_SlottedError(3))
    assert isinstance(found, _SlottedError)
    assert found.place == 3


def test_an_attribute_that_is_none_is_kept_and_one_that_cannot_be_sent_is_not() -> None:
    error = ValueError("bad")
    error.empty, error.lock = None, threading.Lock()  # type: ignore[attr-defined]
    found = _sent(error)
    assert vars(found)["empty"] is None
    assert "lock" not in vars(found)


def test_an_argument_that_cannot_be_sent_becomes_text() -> None:
    found = _sent(ValueError("lock", threading.Lock(), 3))
    assert type(found) is ValueError
    assert found.args[0::2] == ("lock", 3)
    assert "_thread.lock" in found.args[1]


@pytest.mark.parametrize("kind", [_RaisesWhenPickledError, _RaisesWhenLoadedError])
def test_errors_whose_pickling_raises_come_by_type_and_args(kind: type[Exception]) -> None:
    found = _sent(kind("text"))
    assert type(found) is kind
    assert found.args == ("text",)


def test_causes_are_kept() -> None:
    error = RuntimeError("outer")
    error.__cause__ = _TwoArgumentsError("/data/y", 4)
    error.__cause__.__cause__ = KeyError("innermost")
    found = _sent(error)
    assert isinstance(found.__cause__, _TwoArgumentsError)
    assert isinstance(found.__cause__.__cause__, KeyError)


def test_a_ring_of_causes_ends() -> None:
    error = RuntimeError("a")
    error.__cause__ = ValueError("b")
    error.__cause__.__cause__ = error
    assert isinstance(_sent(error).__cause__, ValueError)


def test_an_error_that_takes_no_notes_is_sent_without() -> None:
    found = _sent(_FrozenError(4))
    assert isinstance(found, _FrozenError)
    assert found.place == 4
    add_note(found, "does not raise")


def test_a_class_made_in_a_function_comes_by_value() -> None:
    class LocalError(Exception):
        pass

    found = _sent(LocalError("text"))
    assert type(found) is LocalError  # it was made here, so it is known here


def test_an_error_without_text_is_sent() -> None:
    assert type(_sent(_NoTextError())) is _NoTextError


def test_huge_texts_are_cut_in_the_trace_and_kept_in_the_arguments() -> None:
    found = _sent(ValueError("x" * 1_000_000))
    assert len(found.args[0]) == 1_000_000
    assert len(found.__notes__[0]) < 25_000
    much = _sent(ValueError("x" * 10_000_000))
    assert type(much) is ValueError
    assert len(much.args[0]) < 25_000


def test_deep_recursion_is_sent() -> None:
    def descend(depth: int) -> int:
        return descend(depth + 1)

    with pytest.raises(RecursionError) as caught:
        descend(0)
    assert type(error_of(failure_of(caught.value, "here"))) is RecursionError


def test_a_type_that_is_not_here_is_named() -> None:
    program = textwrap.dedent("""
        import sys, types
        from stoker.processes.failures import failure_of
        module = types.ModuleType("only_there")
        exec("class Odd(Exception): pass", module.__dict__)
        sys.modules["only_there"] = module
        sys.stdout.buffer.write(failure_of(module.Odd("text"), "there"))
    """)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=60)
    found = error_of(ran.stdout)
    assert type(found) is RuntimeError
    assert str(found) == "only_there.Odd: text"
    assert "there:" in found.__notes__[0]


def test_a_class_of_the_other_sides_main_comes_by_value() -> None:
    program = textwrap.dedent("""
        import sys
        from stoker.processes.failures import failure_of
        class Odd(ValueError):
            def __init__(self, a, b):
                super().__init__(a)
                self.b = b
        sys.stdout.buffer.write(failure_of(Odd("text", 5), "there"))
    """)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=60)
    found = error_of(ran.stdout)
    assert isinstance(found, ValueError)
    assert type(found).__qualname__ == "Odd"
    assert found.args == ("text",)
    assert vars(found)["b"] == 5


def test_what_is_sent_is_plain_bytes() -> None:
    assert isinstance(pickle.loads(failure_of(ValueError("x"))), tuple)
