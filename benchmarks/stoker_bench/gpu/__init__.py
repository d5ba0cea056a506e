"""What a GPU changes: measured on one, in one run of ten minutes at most."""
