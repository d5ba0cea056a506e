"""What workers and clients share about bytes: batches, memory of one host, code, errors, Flight calls."""
