"""A scan gives one mask, voxel for voxel in the patient, in whichever orientation and file it is stored."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.scan_samples import slice_dataset, write_series
from veloxseg.image import Geometry, Volume, read, write
from veloxseg.predict.predictor import Predictor
from veloxseg.predict.scans import Scans

ORIENTATIONS = list(itertools.product(itertools.permutations(range(3)), itertools.product((1, -1), repeat=3)))
SUFFIXES = (".nii", ".nii.gz", ".nrrd", ".mha")
SPACING = (1.7, 2.2, 3.1)  # nothing lies on the plan's 2 mm, so everything is interpolated


def stored(volume: Volume, axes: tuple[int, ...], flips: tuple[int, ...]) -> Volume:
    """The same voxels with their axes in another order and direction."""
    index = np.zeros((4, 4))
    index[3, 3] = 1
    for new, (old, flip) in enumerate(zip(axes, flips, strict=True)):
        index[old, new], index[old, 3] = flip, 0 if flip == 1 else volume.array.shape[old] - 1
    array = volume.array.transpose(axes)[tuple(slice(None, None, flip) for flip in flips)]
    x, y, z = array.shape
    return Volume(array=array, geometry=Geometry(shape=(x, y, z), affine=volume.geometry.affine @ index))


@pytest.fixture(scope="module")
def predictor(exported: dict[str, Path]) -> Predictor:
    return Predictor([exported.get("native", exported["openvino"])], threads=1)


@pytest.fixture(scope="module")
def scans(make_scans: Any) -> dict[str, Volume]:
    """CT and PET of whole numbers, which every file type can hold, each on a grid of its own."""
    affine = np.diag([*SPACING, 1.0])
    affine[:3, 3] = (-61.3, 17.7, -203.9)
    found = make_scans((70, 60, 40), affine=affine)
    found = {
        name: Volume(array=np.rint(v.array * 8).astype(np.int16), geometry=v.geometry) for name, v in found.items()
    }
    pet = found["pet"]
    coarse = affine @ np.diag([2.0, 2.0, 1.0, 1.0])
    shape = (35, 30, 40)
    found["pet"] = Volume(array=pet.array[::2, ::2], geometry=Geometry(shape=shape, affine=coarse))
    return found


@pytest.fixture(scope="module")
def expected(predictor: Predictor, scans: dict[str, Volume], tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    folder = tmp_path_factory.mktemp("straight")
    return mask(predictor, {name: save(volume, folder / f"{name}.nii.gz") for name, volume in scans.items()})


def save(volume: Volume, path: Path) -> Path:
    write(volume, path)
    return path


def mask(predictor: Predictor, files: dict[str, Path]) -> np.ndarray:
    """The mask along the patient's axes."""
    return predictor(Scans(files)).labels.in_ras().array


def test_the_mask_is_worth_comparing(expected: np.ndarray) -> None:
    assert 0.001 < expected.mean() < 0.999


@pytest.mark.parametrize("number", range(len(ORIENTATIONS)))
def test_orientation_and_file_type(
    number: int, predictor: Predictor, scans: dict[str, Volume], expected: np.ndarray, tmp_path: Path
) -> None:
    """Each orientation in one file type; `make attack` tries all types in each."""
    suffix = SUFFIXES[(number + number // 8) % len(SUFFIXES)]
    other = ORIENTATIONS[(7 * number + 3) % len(ORIENTATIONS)]  # CT and PET need not be stored alike
    files = {
        "ct": save(stored(scans["ct"], *ORIENTATIONS[number]), tmp_path / f"ct{suffix}"),
        "pet": save(stored(scans["pet"], *other), tmp_path / f"pet{suffix}"),
    }
    assert np.array_equal(mask(predictor, files), expected)


@pytest.mark.parametrize("number", range(0, len(ORIENTATIONS), 6))
def test_dicom(
    number: int, predictor: Predictor, scans: dict[str, Volume], expected: np.ndarray, tmp_path: Path
) -> None:
    turned = stored(scans["ct"], *ORIENTATIONS[number])
    folder = write_dicom(turned, tmp_path / "ct")
    assert np.array_equal(read(folder).in_ras().array, scans["ct"].in_ras().array)
    files = {"ct": folder, "pet": save(scans["pet"], tmp_path / "pet.nii.gz")}
    assert np.array_equal(mask(predictor, files), expected)


def test_byte_order(predictor: Predictor, scans: dict[str, Volume], expected: np.ndarray, tmp_path: Path) -> None:
    import nibabel

    files = {}
    for name, volume in scans.items():
        header = nibabel.Nifti1Header(endianness=">")
        header.set_data_dtype(np.int16)
        files[name] = tmp_path / f"{name}.nii"
        nibabel.save(nibabel.Nifti1Image(volume.array, volume.geometry.affine, header), files[name])
    assert np.array_equal(mask(predictor, files), expected)


def write_dicom(volume: Volume, folder: Path) -> Path:
    """A CT series with one file for each plane along the array's last axis."""
    lps = np.diag([-1.0, -1.0, 1.0, 1.0]) @ volume.geometry.affine
    along, down = (lps[:3, axis] / np.linalg.norm(lps[:3, axis]) for axis in (0, 1))
    x, y, z = volume.geometry.spacing
    columns, rows, slices = volume.array.shape
    datasets = [
        slice_dataset(
            k,
            Columns=columns,
            Rows=rows,
            ImageOrientationPatient=[*along.tolist(), *down.tolist()],
            ImagePositionPatient=(lps @ [0, 0, k, 1])[:3].tolist(),
            PixelSpacing=[y, x],
            SliceThickness=z,
            RescaleIntercept=0,
            PixelData=np.ascontiguousarray(volume.array[:, :, k].T).tobytes(),
        )
        for k in range(slices)
    ]
    return write_series(folder, datasets)
