"""Reading and writing scans: any file or DICOM folder becomes a `Volume`, an array with its place in space."""

from veloxseg.io.volume import Geometry, Volume

__all__ = ["Geometry", "Volume"]
