"""SimpleITK: its image objects, and its C libraries kept quiet. Its space is LPS+, ours RAS+."""

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.extras import require
from veloxseg.image.volume import Geometry

__all__ = ["ONE_THREAD", "captured_stderr", "geometry_of_simpleitk", "quiet_simpleitk", "to_simpleitk"]

ONE_THREAD = threading.RLock()  # for what belongs to the whole process: stderr, and the filters of warnings
LPS_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])


def quiet_simpleitk(what: str = "this") -> Any:
    """Gives the module with the warnings of its C++ part switched off, because we check ourselves what matters.

    `what` needs it: the words of the error where it is not installed.
    """
    require("itk", what)
    import SimpleITK

    SimpleITK.ProcessObject.SetGlobalWarningDisplay(False)
    return SimpleITK


@contextlib.contextmanager
def captured_stderr() -> Iterator[list[str]]:
    """Collects what C libraries print inside, as lines.

    libjpeg prints "Corrupt JPEG data" on the terminal and goes on with invented pixels; this is the only way
    to know. The terminal belongs to the whole process, so one thread at a time may do this.
    """
    said: list[str] = []
    with ONE_THREAD, tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            said += file.read(10_000).decode("utf-8", "replace").splitlines()


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
