"""The file that nnU-Net finds in the folder `nnUNet_extTrainer`; the trainers themselves are in our package."""

from veloxseg.nnunet.trainer import nnUNetTrainerVeloxSeg, nnUNetTrainerVeloxSegShort

__all__ = ["nnUNetTrainerVeloxSeg", "nnUNetTrainerVeloxSegShort"]
