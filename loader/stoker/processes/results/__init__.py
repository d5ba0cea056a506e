"""A worker's results as bytes and memory."""
