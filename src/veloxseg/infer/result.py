"""What a prediction gives: labels on the scan's own grid, volumes, warnings and provenance."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.errors import OutputError
from veloxseg.files import write_json
from veloxseg.io import Geometry, Volume, write, write_dicom_seg
from veloxseg.prepare.dataset import without_suffix

__all__ = ["Segmentation"]


@dataclass(frozen=True, kw_only=True)
class Segmentation:
    """The mask of one case. Research use only, not a medical device."""

    labels: Volume
    names: dict[int, str]  # label value -> name
    volumes_ml: dict[str, float]
    probabilities: dict[str, npt.NDArray[np.uint8]]  # 0..255 for 0..1, if asked for
    warnings: tuple[str, ...]
    provenance: dict[str, Any]

    @property
    def array(self) -> npt.NDArray[Any]:
        """Label values, (X, Y, Z)."""
        return self.labels.array

    @property
    def geometry(self) -> Geometry:
        return self.labels.geometry

    def save(self, path: str | Path) -> None:
        """Writes the mask (.nii.gz, .nii, .nrrd, .mha, or .dcm: a DICOM SEG) and `<name>.json` with its provenance."""
        path = Path(path)
        if path.suffix.lower() == ".dcm":
            self._save_dicom(path)
        else:
            write(self.labels, path)
        stem = without_suffix(path.name.removesuffix(".dcm"))
        for name, values in self.probabilities.items():
            probability = values.astype(np.float32)
            probability /= 255
            target = path.parent / f"{stem}_{name}_probability.nii.gz"
            write(Volume(array=probability, geometry=self.geometry), target)
        write_json(path.parent / f"{stem}.json", self.provenance)

    def _save_dicom(self, path: Path) -> None:
        if self.labels.file_type != "dicom" or self.labels.source is None:
            raise OutputError(
                f"cannot write {path}: a DICOM SEG belongs to a DICOM series, and the scan was a "
                f"{self.labels.file_type} file; write .nii.gz instead"
            )
        names = {value: name for value, name in self.names.items() if value > 0}
        series = self.labels.header.get("series")
        write_dicom_seg(self.labels, self.labels.source, path, label_names=names, series=series)

    def to_nibabel(self) -> Any:
        import nibabel

        return nibabel.Nifti1Image(self.array, self.geometry.affine)

    def to_simpleitk(self) -> Any:
        from veloxseg.io.itk import to_simpleitk

        return to_simpleitk(self.array, self.geometry)
