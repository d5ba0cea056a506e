"""The worker: makes batches for whoever asks, and streams them over Arrow Flight."""
