"""Which samples are in which batch: pure functions of the data set, the seed, the epoch and a position."""
