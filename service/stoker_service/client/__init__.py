"""The service's part inside a trainer: batches from many workers, in one rank's order."""
