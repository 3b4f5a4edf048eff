"""Evaluation: metrics, statistics, and the one-file report."""
