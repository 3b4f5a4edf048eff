"""Prediction: scans in, masks out on their own grid, in bounded memory, without torch where possible."""
