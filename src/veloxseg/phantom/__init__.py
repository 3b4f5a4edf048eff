"""Synthetic scans worth learning on. Everything here is synthetic, and says so."""
