"""What a prediction gives: labels on the scan's own grid, volumes, warnings and provenance."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.errors import OutputError
from veloxseg.files import digest
from veloxseg.image import Geometry, Volume, write, write_dicom_seg
from veloxseg.types import Labels

__all__ = ["Segmentation"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Segmentation:
    """The mask of one case. Research use only, not a medical device."""

    labels: Volume
    names: dict[int, str]  # label value -> name
    volumes_ml: dict[str, float]
    probabilities: dict[str, npt.NDArray[np.uint8]]  # 0..255 for 0..1, if asked for
    warnings: tuple[str, ...]
    provenance: dict[str, Any]
    sources: tuple[Path, ...] = ()  # the files of the scans, which are never written to

    def __repr__(self) -> str:
        volumes = ", ".join(f"{name} {ml:.2f} mL" for name, ml in self.volumes_ml.items())
        return f"Segmentation({'×'.join(map(str, self.geometry.shape))}: {volumes or 'no label'})"

    @property
    def array(self) -> Labels:
        """Label values, (X, Y, Z)."""
        return self.labels.array

    @property
    def geometry(self) -> Geometry:
        return self.labels.geometry

    def save(self, path: str | Path) -> None:
        """Writes the mask (.nii.gz, .nii, .nrrd, .mha, or .dcm: a DICOM SEG) and `<name>.json` with its provenance."""
        from veloxseg.predict.outputs import Targets, check_targets, write_result
        from veloxseg.predict.scans import Scans

        target = Targets.of(Path(path), tuple(self.probabilities), ())
        check_targets({target.mask.name: target}, self.sources)
        write_result(self, Scans({}), target, digest(self.provenance.get("inputs", {})))

    def write_mask(self, path: Path) -> None:
        """The mask alone."""
        if path.suffix.lower() != ".dcm":
            write(self.labels, path)
            return
        if self.labels.file_type != "dicom" or self.labels.source is None:
            raise OutputError(
                f"cannot write {path.name}: a DICOM SEG belongs to a DICOM series, and the scan was a "
                f"{self.labels.file_type} file; write .nii.gz instead"
            )
        names = {value: name for value, name in self.names.items() if value > 0}
        series = self.labels.header.get("series")
        write_dicom_seg(self.labels, self.labels.source, path, label_names=names, series=series)

    def write_probability(self, name: str, path: Path) -> None:
        """The probability of one output as a number from 0 to 1."""
        probability = self.probabilities[name].astype(np.float32)
        probability /= 255
        write(Volume(array=probability, geometry=self.geometry), path)

    def to_nibabel(self) -> Any:
        import nibabel

        return nibabel.Nifti1Image(self.array, self.geometry.affine)

    def to_simpleitk(self) -> Any:
        from veloxseg.image.itk import to_simpleitk

        return to_simpleitk(self.array, self.geometry)
