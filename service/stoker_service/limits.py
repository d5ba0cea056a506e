"""Limits that dispatcher and workers tell their clients, and keep to."""

from __future__ import annotations

from typing import Final

MAX_LANES: Final = 8192
"""Of a pipeline; the owners of so many lanes are a message of about 1 MiB."""

MAX_AHEAD: Final = 64
"""Batches that a worker makes or plans ahead of one stream, however small they are."""

MAX_PIPELINE_BYTES: Final = 256 << 20
"""Of a pipeline with its code. It goes to workers and never to the dispatcher, which only tells the limit."""
