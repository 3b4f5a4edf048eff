"""Label and prediction of a case as volumes on one grid, whose values mean the same.

Labels may be DICOM too: an RTSTRUCT or SEG of a data set lies on the scan that it names. Where both sides name their
values (the data set's labels; the JSON beside a mask, or the segments of a DICOM SEG), they are matched by these names:
a model that calls the tumour 3 is scored on the tumour, whatever number the data set gives it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from veloxseg.dataset.reading import label_grid, read_label_of
from veloxseg.errors import GeometryError, shown
from veloxseg.evaluate.labels import Files, Labels
from veloxseg.evaluate.records import predicted_labels
from veloxseg.image import Geometry, Volume, grid_difference, read_header, read_label
from veloxseg.image.formats import is_image_name
from veloxseg.image.values import renumbered
from veloxseg.types import Spacing

__all__ = ["Masks", "check_same_grid"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Masks:
    """Where labels and predictions come from, and how they are read."""

    truth: Labels
    predictions: Mapping[str, Files]  # method -> case -> file
    by_name: bool = True  # values are matched by their names; else they are taken as they are

    def label(self, case: str) -> Volume:
        path = self.truth.files[case]
        if case not in self.truth.cases or is_image_name(path.name):
            return read_label(path)
        return read_label_of(self.truth.cases[case], self.truth.labels)

    def prediction(self, method: str, case: str, label: Volume) -> Volume:
        """On the label's voxels, with the label's values."""
        path = self.predictions[method][case]
        names = self._names[method]
        if is_image_name(path.name):
            volume = read_label(path)
            check_same_grid(volume.geometry, label.geometry, case, method)
        else:
            volume = read_label(path, reference=label)
            names = names or {name: int(value) for value, name in volume.header.get("names", {}).items()}
        values = new_values(names, self.truth) if self.by_name else {}
        return replace(volume, array=renumbered(volume.array, values)) if values else volume

    @cached_property
    def _names(self) -> dict[str, dict[str, int]]:
        return {method: predicted_labels(files) for method, files in self.predictions.items()}

    def check_grids(self) -> list[Spacing]:
        """Reads all headers before the first voxel, so that a wrong grid is found in seconds.

        Gives the spacing of every label. A DICOM label takes the grid of its scan, and a DICOM prediction that of its
        label, so there is nothing to compare before they are read.
        """
        spacings = []
        for case, path in self.truth.files.items():
            grid = self._label_grid(case, path)
            spacings.append(grid.spacing)
            for method, found in self.predictions.items():
                if case in found and is_image_name(found[case].name):
                    check_same_grid(read_header(found[case]), grid, case, method)
        return spacings

    def _label_grid(self, case: str, path: Path) -> Geometry:
        if is_image_name(path.name):
            return read_header(path)
        if case in self.truth.cases:
            return label_grid(self.truth.cases[case])
        return self.label(case).geometry


def new_values(names: Mapping[str, int], truth: Labels) -> dict[int, int]:
    """A prediction's values → the label's values of the same names; {} if no name is in common, or all are as they are.

    A value whose name the label lacks must not pass for another structure, so it goes where the label has none.
    """
    known = {name: values[0] for name, values in truth.structures.items()} | truth.labels
    shared = {value: known[name] for name, value in names.items() if value and name in known}
    if all(old == new for old, new in shared.items()):
        return {}
    taken = {*known.values(), *(value for values in truth.structures.values() for value in values), *names.values()}
    free = (value for value in range(1, 1 << 16) if value not in taken)
    rest = {value: next(free) for value in names.values() if value and value not in shared and value in known.values()}
    return shared | rest


def check_same_grid(prediction: Geometry, label: Geometry, case: str, method: str) -> None:
    """Refuses a prediction that does not lie on its label's voxels."""
    if difference := grid_difference(prediction, label):
        raise GeometryError(
            f"case {shown(case)!r}: the prediction of {shown(method)} and the label lie on different grids: "
            f"{difference}; predict on the label's grid, or resample the prediction there with nearest neighbour"
        )
