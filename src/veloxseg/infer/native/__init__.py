"""VeloxSeg on one core in C: kernels.c has the arithmetic, program.py the order of it, library.py loads it."""
