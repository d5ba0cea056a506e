"""Memory that other processes of the host may read."""
