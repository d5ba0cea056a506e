"""Measurements of Stoker beside its peers on the same data."""
