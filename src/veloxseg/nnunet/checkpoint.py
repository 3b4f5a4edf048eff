"""A fold of nnU-Net, read without running it: `checkpoint_final.pth` is a pickle, and a pickle can run code.

`torch.load(weights_only=True)` reads tensors and plain values and refuses all else. The numbers that nnU-Net logs are
numpy's, so numpy's scalars and their types are allowed besides; they are data and call nothing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veloxseg.errors import ModelError, shown
from veloxseg.model_folder import read_pickle_safely

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Fold", "find_folds", "read_fold"]

FINAL = "checkpoint_final.pth"


@dataclass(frozen=True)
class Fold:
    """What we take of a checkpoint."""

    path: Path
    configuration: str
    trainer: str
    weights: "dict[str, Tensor]"
    mirror_axes: tuple[int, ...]


def find_folds(results: Path, wanted: tuple[str, ...], checkpoint: str = FINAL) -> list[Path]:
    """The checkpoints of the folds of these names, or of all that there are."""
    if not (results / "plans.json").is_file():
        raise ModelError(
            f"{shown(results)} has no plans.json; give a folder of nnUNet_results such as "
            "Dataset004_Hippocampus/nnUNetTrainer__nnUNetPlans__3d_fullres"
        )
    found = {path.parent.name.removeprefix("fold_"): path for path in sorted(results.glob(f"fold_*/{checkpoint}"))}
    if missing := [fold for fold in wanted if fold not in found]:
        raise ModelError(
            f"{shown(results)} has no fold_{shown(missing[0])}/{checkpoint}; found are folds "
            f"{shown(', '.join(found) or 'none')}"
        )
    chosen = wanted or tuple(name for name in found if name != "all") or tuple(found)
    if not chosen:
        raise ModelError(f"{shown(results)} has no fold with a {checkpoint}; is the training over?")
    return [found[name] for name in chosen]


def read_fold(path: Path) -> Fold:
    """Reads a checkpoint; anything that is not tensors and plain values is refused."""
    import torch

    found = read_pickle_safely(path, _numbers_of_numpy())
    weights = found.get("network_weights") if isinstance(found, dict) else None
    arguments = found.get("init_args") if isinstance(found, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(value, torch.Tensor) for value in weights.values()):
        raise ModelError(f"{shown(path)} holds no network_weights; is it nnU-Net's checkpoint?")
    configuration = arguments.get("configuration") if isinstance(arguments, dict) else None
    axes = found.get("inference_allowed_mirroring_axes") or ()
    if not isinstance(configuration, str) or not all(axis in (0, 1, 2) for axis in axes):
        raise ModelError(f"{shown(path)} names no configuration and mirror axes; is it nnU-Net's checkpoint?")
    mirror_axes = tuple(int(axis) for axis in axes)
    return Fold(path, configuration, str(found.get("trainer_name", "")), weights, mirror_axes)


def _numbers_of_numpy() -> list[Any]:
    """Numpy's scalars as pickles name them, and the types of their numbers."""
    import numpy as np

    scalar = np.float64(0).__reduce__()[0]
    kinds = (np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.bool_)
    # files of numpy 1 name the scalar in another module than numpy 2 does
    return [scalar, (scalar, "numpy.core.multiarray.scalar"), np.dtype, *{type(np.dtype(kind)) for kind in kinds}]
