"""Image objects of other libraries as `Volume`, with the same checks as files get."""

from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.errors import ImageError
from veloxseg.io.checks import check_affine, check_image_values, check_shape, pick_volume
from veloxseg.io.itk import geometry_of_simpleitk
from veloxseg.io.nifti import place
from veloxseg.io.volume import Geometry, Volume

__all__ = ["from_image"]


def from_image(image: Any, *, volume: int | None = None) -> Volume:
    """A nibabel or SimpleITK image object (or a `Volume`) as a float32 `Volume`."""
    if isinstance(image, Volume):
        return image
    if hasattr(image, "GetSpacing") and hasattr(image, "GetDirection"):
        return from_simpleitk(image, volume)
    if hasattr(image, "dataobj") and hasattr(image, "affine"):
        return from_nibabel(image, volume)
    raise ImageError(
        f"a {type(image).__name__} is not an image; give a path, or a nibabel or SimpleITK image"
    )


def from_nibabel(image: Any, volume: int | None) -> Volume:
    if image.affine is None:
        raise ImageError("a nibabel image without an affine; give it the affine of the scan")
    x, y, z = checked_shape(image.shape)
    array = np.asanyarray(image.dataobj)
    affine = np.array(image.affine, np.float64)
    warnings = check_affine(affine)
    if "sform_code" in image.header and np.allclose(image.header.get_best_affine(), affine, atol=1e-4):
        affine, warnings = place(image.header, (x, y, z))  # both forms, and the units
    picked = array.reshape((x, y, z, -1), order="F")
    picked = picked[..., pick_volume(picked.shape[3], volume)]
    header = {}
    if "sform_code" in image.header:
        header = {key: int(image.header[key]) for key in ("sform_code", "qform_code", "xyzt_units")}
    return Volume(
        array=as_float32(picked),
        geometry=Geometry(shape=(x, y, z), affine=affine),
        header=header,
        warnings=tuple(warnings),
    )


def from_simpleitk(image: Any, volume: int | None) -> Volume:
    import SimpleITK

    if image.GetNumberOfComponentsPerPixel() != 1:
        raise ImageError("a SimpleITK image of vectors or colours, expected one real number per voxel")
    if image.GetDimension() == 4:
        image = image[:, :, :, pick_volume(image.GetSize()[3], volume)]
    checked_shape(image.GetSize())
    geometry = geometry_of_simpleitk(image)
    warnings = check_affine(geometry.affine)
    array = as_float32(SimpleITK.GetArrayViewFromImage(image).T)
    return Volume(array=array, geometry=geometry, file_type="nrrd", warnings=tuple(warnings))


def checked_shape(shape: Any) -> tuple[int, int, int]:
    sizes = tuple(int(n) for n in shape)
    check_shape(sizes)
    return sizes[0], sizes[1], sizes[2]


def as_float32(array: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """A copy of its own, with finite and different values."""
    if array.dtype.kind not in "biuf":
        raise ImageError(
            f"voxels of type {array.dtype}, expected one real number per voxel; convert to grey values"
        )
    with np.errstate(over="ignore"):
        copy = np.array(array, np.float32, order="F")
    check_image_values(copy)
    return copy
