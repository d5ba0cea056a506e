"""Nested values as columns: a dict, tuple or dataclass is taken apart into leaves and put together again.

A namedtuple or dataclass comes back as its class where this process has it (a builder saw it here, or its module is
imported already); the class is filled without running its code, so a batch from elsewhere can call nothing. Where the
class is unknown, a dict takes its place. Nothing is ever imported or unpickled on behalf of a batch.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from weakref import WeakValueDictionary

from stoker.batch.dtypes import UnsupportedValueError
from stoker.batch.values import DENSE, Kind, kind_of

Form: TypeAlias = Literal["dict", "list", "tuple", "namedtuple", "dataclass"]

_seen_classes: WeakValueDictionary[str, type] = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class Node:
    """A nested value's form: its parts by key, each a node or the name of the column that holds the leaf."""

    form: Form
    class_name: str
    parts: tuple[tuple[str | int, Node | str], ...]

    def describe(self) -> str:
        """The form in words, for messages."""
        keys = (
            ""
            if self.form in ("tuple", "list")
            else f" with {', '.join(str(key) for key, _ in self.parts) or 'no keys'}"
        )
        return f"a {self.form} of {len(self.parts)}{keys}"

    def to_json(self) -> list[Any]:
        return [self.form, self.class_name, [[key, _part_to_json(part)] for key, part in self.parts]]

    @classmethod
    def from_json(cls, found: list[Any]) -> Node:
        form, class_name, parts = found
        return cls(form, class_name, tuple((key, _part_from_json(part)) for key, part in parts))

    def build(self, leaves: Mapping[str, Any]) -> Any:
        """Put the leaves in their places; parts whose column is not there are left out of dicts."""
        values = {
            key: part.build(leaves) if isinstance(part, Node) else leaves[part]
            for key, part in self.parts
            if isinstance(part, Node) or part in leaves
        }
        match self.form:
            case "list":
                return list(values.values())
            case "tuple":
                return tuple(values.values())
            case "namedtuple" | "dataclass":
                return _fill(_find_class(self.class_name), values)
            case "dict":
                return values


def is_nested(value: Any, kind: Kind) -> bool:
    """Whether a value of one of the ``NESTED`` kinds is taken apart; a list of plain values is one leaf."""
    return kind is not Kind.LIST or any(kind_of(item) in DENSE - {Kind.SCALAR} for item in value)


def take_apart(name: str, value: Any, kind: Kind) -> tuple[Form, str, list[tuple[str | int, Any]]]:
    """Return form, class name and parts of one nested value, one level deep."""
    match kind:
        case Kind.MAPPING:
            if not all(isinstance(key, str) or type(key) is int for key in value):
                raise UnsupportedValueError(f"the dict {name!r} has keys that are neither strings nor integers")
            return "dict", "", list(value.items())
        case Kind.NAMEDTUPLE:
            return "namedtuple", _remember(type(value)), list(zip(value._fields, value, strict=True))
        case Kind.DATACLASS:
            names = [field.name for field in dataclasses.fields(value)]
            return "dataclass", _remember(type(value)), [(part, getattr(value, part)) for part in names]
        case Kind.LIST:
            return "list", "", list(enumerate(value))
        case _:
            return "tuple", "", list(enumerate(value))


def structure_to_json(fields: Mapping[str, Node]) -> bytes:
    return json.dumps({name: node.to_json() for name, node in fields.items()}).encode()


def structure_from_json(text: bytes) -> dict[str, Node]:
    return {name: Node.from_json(found) for name, found in json.loads(text).items()}


def leaf_names(node: Node) -> Iterator[str]:
    for _, part in node.parts:
        if isinstance(part, Node):
            yield from leaf_names(part)
        else:
            yield part


def _part_to_json(part: Node | str) -> Any:
    return part if isinstance(part, str) else part.to_json()


def _part_from_json(found: Any) -> Node | str:
    return found if isinstance(found, str) else Node.from_json(found)


def _remember(found: type) -> str:
    name = f"{found.__module__}:{found.__qualname__}"
    _seen_classes[name] = found
    return name


def _find_class(name: str) -> type | None:
    if name in _seen_classes:
        return _seen_classes[name]
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None


def _fill(found: type | None, values: dict[str | int, Any]) -> Any:
    """Make an instance without calling ``__init__`` or anything else of the class; the dict itself if it cannot be."""
    if found is None:
        return values
    names = tuple(values)
    if issubclass(found, tuple) and getattr(found, "_fields", None) == names:
        return tuple.__new__(found, values.values())
    if dataclasses.is_dataclass(found) and tuple(field.name for field in dataclasses.fields(found)) == names:
        made = object.__new__(found)
        for name in names:
            object.__setattr__(made, str(name), values[name])
        return made
    return values
