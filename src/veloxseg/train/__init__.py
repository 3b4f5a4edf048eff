"""Training: the loop, the recipe, the losses, checkpoints that survive, progress that a person likes."""
