"""A tiny data set with every kind of outcome, written as files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from veloxseg.image import Geometry, Volume, write

Save = Callable[..., Path]
AFFINE = np.diag([2.0, 2.0, 3.0, 1.0])


def save(path: Path, array: npt.NDArray[np.generic], affine: npt.NDArray[np.float64] = AFFINE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    x, y, z = array.shape
    write(Volume(array=array, geometry=Geometry(shape=(x, y, z), affine=affine)), path)
    return path


def cube(value: int = 1, start: int = 3, stop: int = 9) -> npt.NDArray[np.uint8]:
    array = np.zeros((16, 14, 12), np.uint8)
    array[start:stop, start:stop, start:stop] = value
    return array


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """labels/, good/, bad/ and images/ (CT and PET, nnU-Net naming), seven cases, one structure "lesion"."""
    for number in range(7):
        name = f"case_{number}.nii.gz"
        empty = number == 5
        label = cube(start=3, stop=9) * (not empty)
        save(tmp_path / "labels" / name, label)
        save(tmp_path / "good" / name, cube(start=3, stop=9 - number % 3) * (number not in (4, 5)))
        if number != 6:
            save(tmp_path / "bad" / name, cube(start=3 + number % 2, stop=7))
        random = np.random.default_rng(number)
        for channel, values in enumerate((random.normal(0, 50, label.shape), label + random.random(label.shape))):
            save(tmp_path / "images" / f"case_{number}_000{channel}.nii.gz", values.astype(np.float32))
    text = '{"channel_names": {"0": "CT", "1": "PET"}, "labels": {"background": 0, "lesion": 1}}'
    (tmp_path / "dataset.json").write_text(text, encoding="utf-8")
    return tmp_path
