"""What a conversion keeps at its destination, so that a killed one goes on.

``stoker-convert.json`` says what the run makes of what; ``.stoker-convert/shard-000012.json`` says that a shard is
finished. Neither holds times, so an undisturbed run and one that was killed leave the same files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

from stoker.errors import NotFoundError, SampleError, SpecError, StateError
from stoker.formats.stores import Stores
from stoker.storage.urls import shown

VERSION = 1
RUN_NAME = "stoker-convert.json"
_FOLDER = ".stoker-convert/"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that was left out, and why."""

    url: str
    row: int
    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class ShardState:
    """A finished shard of the run with this identity; ``name`` is empty if all its records were bad: there is none."""

    run: str
    name: str
    rows: int
    bytes: int
    digest: str
    skipped: tuple[Skipped, ...] = ()


def digest_of(payload: bytes | memoryview) -> str:
    """The hash of a whole shard."""
    return blake2b(payload, digest_size=16).hexdigest()


def skipped_of(bad: SampleError) -> Skipped:
    """A bad record as it is listed."""
    op = f"{bad.op}: " if bad.op else ""
    if bad.origin is None:
        return Skipped("", 0, "", f"{op}{bad.reason}")
    return Skipped(bad.origin.url, bad.origin.row, bad.origin.key, f"{op}{bad.reason}")


def identity_of(run: Mapping[str, Any]) -> str:
    """What tells runs apart: the source's kind and digest, and the settings."""
    told = [run["kind"], run["digest"], run["settings"]]
    return digest_of(json.dumps(told, sort_keys=True).encode())


def load_shard(stores: Stores, folder: str, number: int, run_id: str) -> ShardState | None:
    """What is known of a shard; None if it is not finished, belongs to another run, or what is known is damaged."""
    found = _load(stores, _shard_url(folder, number))
    try:
        known = None if found is None else _shard(found)
    except (KeyError, TypeError):
        return None
    return known if known is not None and known.run == run_id else None


def save_shard(stores: Stores, folder: str, number: int, state: ShardState) -> None:
    """Note that a shard is finished."""
    _save(stores, _shard_url(folder, number), asdict(state))


def begin(stores: Stores, folder: str, run: Mapping[str, Any]) -> None:
    """Claim a destination for a run, or go on with it.

    Raises StateError if the destination holds shards of another source or with other settings, SpecError if it holds
    shards of which nothing is known.
    """
    url = folder + RUN_NAME
    known = _load(stores, url)
    stray = next(iter(stores.of(folder).list(f"{folder}shard-")), None)
    if known is not None and stray is not None:
        _check_same(folder, known, run)
        return
    if stray is not None:
        raise SpecError(
            f"{shown(folder)} holds {shown(stray.url)} and no {RUN_NAME}: not a conversion that could go on. Give an "
            "empty DESTINATION, or remove what lies there"
        )
    _save(stores, url, {"version": VERSION, "state": "running", **run})


def finish(
    stores: Stores,
    folder: str,
    run: Mapping[str, Any],
    shards: Sequence[ShardState],
    problems: Sequence[Skipped],
    classes: Mapping[str, Sequence[str]],
) -> str:
    """Write the whole manifest of the run; returns its URL."""
    listed = [
        {"name": shard.name, "rows": shard.rows, "bytes": shard.bytes, "digest": shard.digest}
        for shard in shards
        if shard.name
    ]
    skipped = [*problems, *(bad for shard in shards for bad in shard.skipped)]
    content = {
        "version": VERSION,
        "state": "done",
        **run,
        "rows": sum(shard.rows for shard in shards),
        "bytes": sum(shard.bytes for shard in shards),
        "shards": listed,
        "skipped": [asdict(bad) for bad in skipped],
        "classes": {name: list(names) for name, names in classes.items()},
    }
    _save(stores, folder + RUN_NAME, content)
    return folder + RUN_NAME


def _check_same(folder: str, known: Mapping[str, Any], run: Mapping[str, Any]) -> None:
    where = f"{shown(folder)}{RUN_NAME}"
    if known.get("version") != VERSION:
        raise StateError(f"{where} is of version {known.get('version')!r}, this Stoker writes {VERSION}; convert anew")
    old, new = dict(known.get("settings") or {}), dict(run["settings"])
    differing = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    if differing:
        listed = "; ".join(f"{name} {old.get(name)!r} there, {new.get(name)!r} now" for name in differing)
        raise StateError(f"{where} was begun with other settings: {listed}. Give these, or another DESTINATION")
    for name, text in (("kind", "is of another kind"), ("digest", "has changed, or is another")):
        if known.get(name) != run[name]:
            raise StateError(
                f"{where}: the source {text} since that run began: {known.get('source')!r} then, {run['source']!r} now"
                "; give another DESTINATION"
            )


def _shard(found: Mapping[str, Any]) -> ShardState:
    skipped = tuple(Skipped(bad["url"], bad["row"], bad["key"], bad["reason"]) for bad in found["skipped"])
    return ShardState(found["run"], found["name"], found["rows"], found["bytes"], found["digest"], skipped)


def _shard_url(folder: str, number: int) -> str:
    return f"{folder}{_FOLDER}shard-{number:06d}.json"


def _load(stores: Stores, url: str) -> dict[str, Any] | None:
    try:
        size = stores.of(url).head(url).size_bytes
        text = bytes(stores.read(url, 0, size)) if size else b"null"
    except NotFoundError:
        return None
    try:
        found = json.loads(text)
    except ValueError as error:
        if url.endswith(f"/{RUN_NAME}"):
            raise StateError(f"{shown(url)} is no JSON ({error}); remove it and convert anew") from error
        return None
    return found if isinstance(found, dict) else None


def _save(stores: Stores, url: str, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=True, sort_keys=False)
    stores.of(url).write(url, f"{text}\n".encode())
