"""Training: the recipe, one loop on Lightning Fabric, checkpoints that survive, progress that a person likes."""
