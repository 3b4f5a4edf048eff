"""A tiny data set as nnU-Net has it: two modalities, three classes or regions, on grids that are stored askew."""

import json
from pathlib import Path

import numpy as np

from veloxseg.image import Geometry, Volume, write

LABELS = {
    "classes": {"labels": {"background": 0, "organ": 1, "lesion": 2}},
    "regions": {"labels": {"background": 0, "whole": [1, 2], "core": 2}, "regions_class_order": [1, 2]},
}
SHAPE = (40, 36, 30)


def case_volumes(seed: int) -> tuple[dict[str, Volume], Volume]:
    """An organ with a lesion in air, as CT and PET, and its label; every second case is stored another way."""
    random = np.random.default_rng(seed)
    shape = tuple(int(n + random.integers(0, 5)) for n in SHAPE)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, n) for n in shape], indexing="ij"))
    centre = random.uniform(-0.15, 0.15, 3)[:, None, None, None]
    organ = ((grid - centre) ** 2).sum(0) < 0.5
    lesion = ((grid - centre - 0.15) ** 2).sum(0) < 0.06
    noise = random.standard_normal((2, *shape)).astype(np.float32)
    label = organ.astype(np.uint8) + lesion
    ct = (-200 + 250 * organ + 60 * lesion + 15 * noise[0]).astype(np.float32)
    pet = (0.5 + 1.0 * organ + 6 * lesion + 0.2 * np.abs(noise[1])).astype(np.float32)
    for scan in (ct, pet):
        scan[:, :2] = 0  # what nnU-Net crops
        scan[-1] = 0
    affine = np.diag([-1.3, 1.7, 2.4, 1.0] if seed % 2 else [1.5, 1.5, 2.0, 1.0])
    geometry = Geometry(shape=shape, affine=affine)  # type: ignore[arg-type]
    scans = {name: Volume(array=array, geometry=geometry) for name, array in (("ct", ct), ("pet", pet))}
    return scans, Volume(array=label, geometry=geometry)


def write_dataset(raw: Path, name: str, kind: str, cases: int = 5) -> Path:
    """`raw/<name>` with labelled cases and one more in imagesTs."""
    root = raw / name
    for folder in ("imagesTr", "labelsTr", "imagesTs"):
        (root / folder).mkdir(parents=True)
    for number in range(cases + 1):
        scans, label = case_volumes(number)
        images = "imagesTs" if number == cases else "imagesTr"
        for channel, volume in enumerate(scans.values()):
            write(volume, root / images / f"case{number}_{channel:04d}.nii.gz")
        if number < cases:
            write(label, root / "labelsTr" / f"case{number}.nii.gz")
    description = {
        "channel_names": {"0": "CT", "1": "PET"},
        "numTraining": cases,
        "file_ending": ".nii.gz",
        **LABELS[kind],
    }
    (root / "dataset.json").write_text(json.dumps(description))
    return root
