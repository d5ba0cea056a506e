"""Batches on the device that the trainer works on, one ahead of it."""
