"""SimpleITK: its image objects, and writing NRRD and MetaImage. Its space is LPS+, ours RAS+."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.errors import OutputError
from veloxseg.files import atomic_path
from veloxseg.io.checks import shown
from veloxseg.io.volume import Geometry, Volume

__all__ = ["geometry_of_simpleitk", "quiet_simpleitk", "to_simpleitk", "write_itk"]

LPS_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])


def quiet_simpleitk() -> Any:
    """The module, with the warnings of its C++ part switched off: what matters, we check ourselves."""
    import SimpleITK

    SimpleITK.ProcessObject.SetGlobalWarningDisplay(False)
    return SimpleITK


def geometry_of_simpleitk(image: Any) -> Geometry:
    """The grid of a 3-D SimpleITK image."""
    affine = np.eye(4)
    affine[:3, :3] = np.reshape(image.GetDirection(), (3, 3)) * np.asarray(image.GetSpacing())
    affine[:3, 3] = image.GetOrigin()
    x, y, z = image.GetSize()
    return Geometry(shape=(x, y, z), affine=LPS_TO_RAS @ affine)


def to_simpleitk(array: npt.NDArray[Any], geometry: Geometry) -> Any:
    """A SimpleITK image of an (X, Y, Z) array."""
    sitk = quiet_simpleitk()
    image = sitk.GetImageFromArray(np.ascontiguousarray(array.T))
    affine = LPS_TO_RAS @ geometry.affine
    image.SetSpacing(geometry.spacing)
    image.SetOrigin(tuple(affine[:3, 3].tolist()))
    image.SetDirection((affine[:3, :3] / np.asarray(geometry.spacing)).ravel().tolist())
    return image


def write_itk(volume: Volume, path: Path) -> None:
    """Writes .nrrd or .mha, compressed at the fast level."""
    sitk = quiet_simpleitk()
    writer = sitk.ImageFileWriter()
    writer.SetUseCompression(True)
    writer.SetCompressionLevel(3)
    with atomic_path(path) as temporary:
        writer.SetFileName(str(temporary))
        image = to_simpleitk(volume.array, volume.geometry)
        try:
            writer.Execute(image)
        except RuntimeError as error:
            raise OutputError(
                f"cannot write {shown(path)}: SimpleITK failed, the disk may be full"
            ) from error
