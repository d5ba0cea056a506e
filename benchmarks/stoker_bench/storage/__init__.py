"""Measurements of reading from object storage, and of the caches before it."""
