"""What tests share: makers of small shards, object stores that really run."""
