"""Prediction: runtimes, the sliding window, the whole way from scans to a mask, and export. Imports without torch."""
