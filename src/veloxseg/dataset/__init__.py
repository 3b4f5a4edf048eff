"""Data sets: what belongs together, in whatever layout it was unpacked."""
