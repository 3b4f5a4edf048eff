"""Other networks, written anew from their papers or taken from MONAI, for comparison."""
