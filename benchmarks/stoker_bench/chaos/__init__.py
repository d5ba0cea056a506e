"""An HTTP server that behaves as a cloud's object store does, by a seed."""

from __future__ import annotations
