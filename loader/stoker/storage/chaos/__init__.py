"""Storage that misbehaves as clouds do, by a seed."""

from __future__ import annotations
