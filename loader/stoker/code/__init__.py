"""Users' code on its way to other processes."""
