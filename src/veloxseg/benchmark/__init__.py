"""Speed tables: contenders interleaved in one run on this machine."""
