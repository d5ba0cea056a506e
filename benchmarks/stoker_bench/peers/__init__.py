"""Other ways to load the same shards, one file each."""
