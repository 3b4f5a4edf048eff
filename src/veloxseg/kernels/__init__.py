"""Operations of training in C, as functions that PyTorch differentiates: what a CPU computes most of the time."""
