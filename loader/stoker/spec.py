"""The decorator that makes a class a spec: frozen, validated, JSON-able."""

from __future__ import annotations

import difflib
from dataclasses import fields
from typing import Any, TypeVar, dataclass_transform

import pydantic
from pydantic.dataclasses import dataclass as pydantic_dataclass

from stoker.errors import SpecError

T = TypeVar("T")

_CONFIG = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True, validate_default=False)


@dataclass_transform(frozen_default=True)
def spec(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen pydantic dataclass whose errors are :class:`SpecError`.

    Arguments may be positional. Types are checked and lists become tuples where the annotation says so; checks
    across fields belong in ``__post_init__`` and raise :class:`SpecError`.
    """
    made = pydantic_dataclass(frozen=True, config=_CONFIG)(cls)
    checked_init = made.__init__

    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        known = [f.name for f in fields(made) if f.init]
        for name in kwargs:
            if name not in known:
                raise SpecError(_unknown(made.__name__, name, known))
        try:
            checked_init(self, *args, **kwargs)
        except pydantic.ValidationError as error:
            raise _own(error) or SpecError(_explain(made.__name__, known, error)) from None

    made.__init__ = checked  # type: ignore[method-assign]  # pydantic's own error is not ours to show
    return made  # type: ignore[return-value]  # pydantic returns its protocol type


def _unknown(owner: str, name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
    return f"{owner} has no argument {name!r}; {hint}"


def _own(error: pydantic.ValidationError) -> SpecError | None:
    """The SpecError that a ``__post_init__`` raised, out of pydantic's wrapping."""
    causes = [item.get("ctx", {}).get("error") for item in error.errors(include_url=False)]
    return next((cause for cause in causes if isinstance(cause, SpecError)), None)


def _explain(owner: str, known: list[str], error: pydantic.ValidationError) -> str:
    """The first thing that is wrong with each argument, by its name."""
    lines: dict[str, str] = {}
    for item in error.errors(include_url=False):
        first = item["loc"][0]
        name = known[first] if isinstance(first, int) and first < len(known) else str(first)
        if item["type"] in ("missing", "missing_argument"):
            lines.setdefault(name, f"{owner} needs {name!r}")
        else:
            lines.setdefault(name, f"{owner}: argument {name!r}: {item['msg']}, found {item['input']!r}")
    return "; ".join(lines.values())
