"""A longer data set out of the same bytes: an epoch of a few batches would measure the beginnings of streams."""

from __future__ import annotations

from pathlib import Path

from stoker_bench.datasets import MadeShards


def repeated(made: MadeShards, times: int) -> str:
    """Return a pattern of shards that are these, several times over: hard links, read from the same pages of the cache.

    They lie in a folder beside the shards', and stay there.
    """
    folder = made.folder.with_name(f"{made.folder.name}-x{times}")
    folder.mkdir(exist_ok=True)
    for number in range(times * len(made.shards)):
        shard = made.shards[number % len(made.shards)]
        link = folder / f"shard-{number:06d}.tar"
        if not (link.exists() and link.samefile(shard)):
            _link(link, shard)
    return str(folder / f"shard-{{000000..{times * len(made.shards) - 1:06d}}}.tar")


def _link(link: Path, shard: Path) -> None:
    partial = link.with_name(f".{link.name}")
    partial.unlink(missing_ok=True)
    partial.hardlink_to(shard)
    partial.replace(link)
