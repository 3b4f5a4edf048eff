"""VeloxSeg for one core in C: the arithmetic is in the .c files, the order of it in program.py."""
