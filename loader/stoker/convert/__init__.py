"""Other layouts of data become shards that Stoker reads: ``convert(source, destination, options)``."""

from stoker.convert.options import ConvertOptions
from stoker.convert.run import Converted, ConvertProgress, convert, look

__all__ = ["ConvertOptions", "ConvertProgress", "Converted", "convert", "look"]
