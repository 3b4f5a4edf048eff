"""A case's label: contours lie on the scan that they name."""

from pathlib import Path

import veloxseg.image as vio
from support.scan_samples import SHAPE, SPACING, box_contours, pet_slice, write_rtstruct, write_series
from veloxseg.dataset.reading import open_label


def test_a_case_takes_the_scan_that_contours_name(tmp_path: Path) -> None:
    """By default the CT is asked; these contours were drawn on the PET."""
    ct = vio.read(write_series(tmp_path / "ct"))
    shifted = [pet_slice(z, SeriesInstanceUID="1.2.3") for z in range(SHAPE[2])]
    for z, one in enumerate(shifted):
        one.ImagePositionPatient = [-10.0, -20.0, 30.0 + SPACING[2] * (z - 1)]
    pet = vio.read(write_series(tmp_path / "pet", shifted))
    path = write_rtstruct(tmp_path / "rs.dcm", {"GTV": box_contours(range(1, 4))}, "1.2.3")
    label = open_label(path, {"lesion": 1}, {"ct": ct, "pet": pet})
    assert label.geometry.same_grid(pet.geometry)
    assert label.array[:, :, 2:5].any(axis=(0, 1)).all()
