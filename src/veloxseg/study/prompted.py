"""SAM-Med3D without any training on the data: clicks are sampled from the label, as its authors evaluate it.

For each label value of a case, a cube of 128³ voxels of 1.5 mm around the label is cut from one scan along its own
axes, CT clipped to ±1000, and normalised by mean and deviation of what is above 0. The first click is a random voxel of
the label; each further one is a random voxel that the last mask has wrong, on top of that mask. What lies outside the
cube is not segmented.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from veloxseg.dataset.dataset import Case, Dataset
from veloxseg.dataset.reading import read_label_of, read_scan
from veloxseg.errors import ConfigError, DatasetError, ModelError, shown
from veloxseg.files import writable_folder
from veloxseg.image import Geometry, Volume, write
from veloxseg.image.regions import bounding_box
from veloxseg.image.resample import resample_image
from veloxseg.modality import kind_of
from veloxseg.model_folder import differing_names, read_pickle_safely
from veloxseg.types import Array, Floats, Mask

if TYPE_CHECKING:
    from veloxseg.peers.sam_med3d import SamMed3D

__all__ = ["WEIGHTS", "load_sam", "next_click", "prompt_case", "prompt_cases"]

WEIGHTS = "github.com/uni-medical/SAM-Med3D (sam_med3d_turbo.pth) or its page on huggingface.co"
SPACING_MM = 1.5
CT_LIMITS = (-1000.0, 1000.0)


def load_sam(path: str | Path) -> "SamMed3D":
    """The network with its released weights: a .safetensors file of them, or the .pth, of which nothing is run."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from veloxseg.peers import sam_med3d

    path = Path(path)
    if not path.is_file():
        raise ModelError(f"{shown(path)} is no file; the weights of SAM-Med3D are to be had from {WEIGHTS}")
    try:
        content: Any = load_file(path) if path.suffix == ".safetensors" else read_pickle_safely(path)
    except SafetensorError as error:
        raise ModelError(f"{shown(path)} is damaged ({shown(error, 80)}); get it again from {WEIGHTS}") from error
    weights = content.get("model_state_dict", content) if isinstance(content, dict) else {}
    network = sam_med3d.SamMed3D(sam_med3d.BASE)
    if differing := differing_names(network, weights):
        raise ModelError(f"{shown(path)} does not fit SAM-Med3D (ViT-B, 128³) in {differing}; get it from {WEIGHTS}")
    network.load_state_dict(weights)
    return network.eval()


def prompt_cases(
    network: "SamMed3D", dataset: Dataset, folder: Path, *, modality: str, clicks: int, seed: int
) -> Iterator[str]:
    """Writes a mask for every labelled case, on the label's own grid; gives their names."""
    if modality not in dataset.modalities:
        raise ConfigError(f"there is no modality {shown(modality)!r}; the cases have {', '.join(dataset.modalities)}")
    cases = [case for case in dataset.cases if case.label is not None]
    if not cases:
        raise DatasetError(f"{shown(dataset.root)} has no labelled case; clicks are sampled from labels")
    writable_folder(folder)
    for number, case in enumerate(cases):
        mask = prompt_case(network, case, dataset, modality, clicks, np.random.default_rng((seed, number)))
        write(mask, folder / f"{case.name}.nii.gz")
        yield case.name


def prompt_case(
    network: "SamMed3D", case: Case, dataset: Dataset, modality: str, clicks: int, random: np.random.Generator
) -> Volume:
    if modality not in case.images:
        raise DatasetError(f"case {case.name} lacks modality {modality}; add it, or leave the case out by --cases")
    label, scan = read_label_of(case, dataset.labels), read_scan(case, modality)
    found: Array = np.zeros(label.array.shape, label.array.dtype)
    for value in _values(label.array, dataset):
        target = label.array == value
        cube = cube_around(target, label.geometry, network.sizes.image)
        image = normalised(resample_image(scan, cube, "linear", 0.0), kind_of(modality))
        share = resample_image(Volume(array=target.astype(np.float32), geometry=label.geometry), cube, "linear", 0.0)
        mask = segment(network, image, share >= min(0.5, float(share.max())), clicks, random)
        inside = resample_image(Volume(array=mask, geometry=cube), label.geometry, "linear", 0.0) > 0.5
        found[inside] = value
    return Volume(array=found, geometry=label.geometry)


def _values(label: Array, dataset: Dataset) -> Iterable[int]:
    listed = {value for value in dataset.labels.values() if value}
    return [int(value) for value in np.unique(label) if int(value) in listed]


def cube_around(mask: Mask, geometry: Geometry, size: int) -> Geometry:
    """A cube of `size` voxels of 1.5 mm, along the axes of a grid, whose middle is that of the mask's box."""
    middle = np.array([(part.start + part.stop - 1) / 2 for part in bounding_box(mask)])
    affine = np.eye(4)
    affine[:3, :3] = geometry.direction * SPACING_MM
    affine[:3, 3] = (geometry.affine @ [*middle, 1])[:3] - affine[:3, :3] @ np.full(3, (size - 1) / 2)
    return Geometry(shape=(size, size, size), affine=affine)


def normalised(image: Floats, kind: str) -> Floats:
    """Mean 0 and deviation 1 of what is above 0."""
    if kind == "ct":
        image = np.clip(image, *CT_LIMITS)
    seen = image[image > 0] if np.count_nonzero(image > 0) > 1 else image.ravel()
    return np.asarray((image - seen.mean()) / max(float(seen.std(ddof=1)), 1e-6), np.float32)


def segment(network: "SamMed3D", image: Floats, target: Mask, clicks: int, random: np.random.Generator) -> Floats:
    """1 where the mask after so many clicks is, else 0; on the image's voxels."""
    import torch
    from torch.nn import functional

    size = network.sizes.image
    mask: Mask = np.zeros(target.shape, bool)
    with torch.inference_mode():
        embedding = network.embed(torch.from_numpy(image)[None, None])
        logits = torch.zeros(1, 1, size // 4, size // 4, size // 4)
        for _ in range(clicks):
            click = next_click(mask, target, random)
            if click is None:
                break
            place, positive = click
            point = torch.tensor([[place]], dtype=torch.float32)
            logits = network.decode(embedding, point, torch.tensor([[positive]]), logits)
            full = functional.interpolate(logits, size=target.shape, mode="trilinear", align_corners=False)
            mask = full[0, 0].numpy() > 0
    return mask.astype(np.float32)


def next_click(mask: Mask, target: Mask, random: np.random.Generator) -> tuple[tuple[int, int, int], bool] | None:
    """A random voxel that is wrong, and whether it belongs to the target; None if all are right."""
    wrong = np.argwhere(mask != target)
    if not len(wrong):
        return None
    x, y, z = (int(index) for index in wrong[random.integers(len(wrong))])
    return (x, y, z), bool(target[x, y, z])
