"""The VeloxSeg network (ICLR 2026). Knows torch, and nothing of files.

Importing this package does not import torch: `config` and `jl` are plain Python.
"""
