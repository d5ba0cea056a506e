"""Reading, decoding and batching in threads, bounded in bytes at each stage."""
