"""Ranges that were read once, kept in memory and on the local disk for as long as their next use is near."""

from stoker.storage.cache.cache import ChunkCache
from stoker.storage.cache.options import CacheOptions
from stoker.storage.cache.reading import Load
from stoker.storage.cache.stats import CacheStats

__all__ = ["CacheOptions", "CacheStats", "ChunkCache", "Load"]
