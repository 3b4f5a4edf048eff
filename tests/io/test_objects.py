"""Image objects of nibabel and SimpleITK become the same volume as their files."""

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk
from scan_samples import SHAPE, oblique_affine, ramp

import veloxseg.io as vio
from veloxseg.errors import GeometryError, ImageError
from veloxseg.io.itk import to_simpleitk

GRID = vio.Geometry(shape=SHAPE, affine=oblique_affine())


def test_both_libraries_give_one_volume() -> None:
    for image in (nib.Nifti1Image(ramp(), oblique_affine()), to_simpleitk(ramp(), GRID)):
        scan = vio.from_image(image)
        assert np.array_equal(scan.array, ramp())
        assert scan.array.dtype == np.float32
        assert scan.geometry.distance(GRID) < 1e-4
    assert vio.from_image(scan) is scan


def test_it_does_not_share_memory_with_the_image() -> None:
    array = ramp().astype(np.float32)
    scan = vio.from_image(nib.Nifti1Image(array, oblique_affine()))
    scan.array[:] = 0
    assert array.max() == ramp().max()


def test_4d_needs_a_choice() -> None:
    four = np.stack([ramp(), -ramp()], axis=3)
    joined = sitk.JoinSeries([to_simpleitk(array, GRID) for array in (ramp(), -ramp())])
    for image in (nib.Nifti1Image(four, oblique_affine()), joined):
        with pytest.raises(ImageError, match="--volume"):
            vio.from_image(image)
        assert np.array_equal(vio.from_image(image, volume=1).array, -ramp())


def test_objects_that_are_no_volume() -> None:
    sheared = oblique_affine()
    sheared[0, 1] += 1
    nan = ramp().astype(np.float32)
    nan[0, 0, 0] = np.nan
    torn = nib.Nifti1Image(ramp(), oblique_affine())
    torn.header.set_qform(np.diag([1.5, 2, 3, 1]), code=1)
    cases = [
        (torn, GeometryError, "sform and qform disagree"),
        (ramp(), ImageError, "ndarray is not an image"),
        (nib.Nifti1Image(ramp()[:, :, 0], oblique_affine()), ImageError, "2-D"),
        (nib.Nifti1Image(ramp().astype(np.complex64), oblique_affine()), ImageError, "complex"),
        (nib.Nifti1Image(ramp(), sheared), GeometryError, "sheared"),
        (nib.Nifti1Image(nan, oblique_affine()), ImageError, "1 NaN"),
        (nib.Nifti1Image(ramp(), None), ImageError, "without an affine"),
        (sitk.Image([8, 7], sitk.sitkInt16), ImageError, "2-D"),
        (sitk.Image([8, 7, 6], sitk.sitkVectorUInt8, 3), ImageError, "colours"),
        (sitk.Image([8, 7, 6], sitk.sitkInt16), ImageError, "every voxel is 0"),
    ]
    for image, kind, words in cases:
        with pytest.raises(kind, match=words):
            vio.from_image(image)
