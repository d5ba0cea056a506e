"""What a conversion is told."""

from __future__ import annotations

from typing import Any, Literal

from stoker.errors import SpecError
from stoker.spec import spec

Kind = Literal["files", "hugging-face", "mds", "tar", "tfrecord"]
DEFAULT_SHARD_BYTES = 256 << 20


@spec
class ConvertOptions:
    """How a source is read, cut into shards and written. What :meth:`settings` leaves out decides no byte.

    * ``to``: the layout of the shards. ``kind``: what the source is, where that cannot be told by looking.
    * ``shard_bytes``: a shard is closed before its records, as the source holds them, exceed this; one record may.
      ``shard_rows``: the most records of a shard.
    * ``shuffle_seed``: records are mixed over the whole source first, for data that are sorted by class.
    * ``on_error``: ``"skip"`` leaves bad records out and lists them with reasons.
    * ``labels``: of folders of files, whether class folders make the field ``cls``, as in ``stoker.files()``.
    * ``columns``: of MDS, TFRecord and Hugging Face data, the columns to take. ``extensions``: of folders of files,
      which to take; pictures if not given.
    * ``shorter_side``: pictures are made smaller, never larger, until their shorter side has this many pixels.
      ``encode``, ``quality``: pictures become JPEG or WebP. ``pictures``: the fields that this is about; if not given,
      those named as an extension of pictures (``jpg``, not ``seg.png``, whose pixels may be numbers of classes).
    * ``workers``: threads; each holds one shard in memory at a time (two copies of it, up to six of a Parquet shard).
      If not given as many as cores, fewer if half of the memory does not hold that.
    * ``storage_options``, ``destination_options``: for the stores; the second are as the first if not given.
    """

    to: Literal["tar", "parquet"] = "tar"
    kind: Kind | None = None
    shard_bytes: int = DEFAULT_SHARD_BYTES
    shard_rows: int | None = None
    shuffle_seed: int | None = None
    on_error: Literal["raise", "skip"] = "raise"
    columns: tuple[str, ...] | None = None
    extensions: tuple[str, ...] | None = None
    labels: Literal["auto", "folders", "none"] = "auto"
    shorter_side: int | None = None
    encode: Literal["jpeg", "webp"] | None = None
    quality: int = 90
    pictures: tuple[str, ...] | None = None
    workers: int | None = None
    storage_options: dict[str, str] | None = None
    destination_options: dict[str, str] | None = None

    def __post_init__(self) -> None:
        for name in ("shard_bytes", "shard_rows", "shorter_side", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SpecError(f"{name} must be at least 1, found {value}")
        if not 1 <= self.quality <= 100:
            raise SpecError(f"quality is {self.quality}; expected 1..100")

    def settings(self) -> dict[str, Any]:
        """What decides the bytes of the shards, as JSON-able data: a run goes on only with the same.

        ``on_error`` is not among them: shards that hold no bad record are the same with either.
        """
        return {
            "to": self.to,
            "shard_bytes": self.shard_bytes,
            "shard_rows": self.shard_rows,
            "shuffle_seed": self.shuffle_seed,
            "columns": _listed(self.columns),
            "extensions": _listed(self.extensions),
            "labels": self.labels,
            "shorter_side": self.shorter_side,
            "encode": self.encode,
            "quality": self.quality if self.changes_pictures else None,
            "pictures": _listed(self.pictures),
        }

    @property
    def changes_pictures(self) -> bool:
        return self.shorter_side is not None or self.encode is not None


def _listed(names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None else list(names)
