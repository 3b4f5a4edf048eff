"""What is scored: the masks, and the structures that matter. Regions that were given must hold every label value."""

from collections.abc import Mapping
from dataclasses import dataclass

from veloxseg.errors import DatasetError, shown
from veloxseg.evaluate.labels import NAMED_REGIONS, UNSCORED, Files, Labels, Regions, named
from veloxseg.evaluate.masks import Masks

__all__ = ["Task", "scored_regions"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is scored: the truth, the predictions of each method, and the structures that matter."""

    masks: Masks
    regions: Regions | None  # as the user gave them
    unscored: frozenset[int]  # values that the user leaves out of all regions
    known: Regions  # what the predictions' own JSON calls their values
    tolerance_mm: float

    @property
    def truth(self) -> Labels:
        return self.masks.truth

    @property
    def predictions(self) -> Mapping[str, Files]:
        return self.masks.predictions

    @property
    def given(self) -> Regions:
        """The structures that somebody named."""
        return self.regions or self.truth.structures or self.known

    def structures(self, values: frozenset[int]) -> Regions:
        """The structures to score where these label values were found."""
        return self.regions or named(self.given, values, self.known)

    def check_values(self, case: str, values: frozenset[int]) -> None:
        """Regions that were given must hold every value: what they leave out would be missing from all of them."""
        if self.regions is None and not self.truth.overlapping:
            return
        held = {value for members in self.given.values() for value in members}
        if left := sorted(values - held - self.unscored):
            words = ", ".join(f"{name} = {','.join(map(str, members))}" for name, members in self.given.items())
            raise DatasetError(
                f"case {shown(case)!r} holds label value {left[0]}, and no region does ({shown(words)}); name other "
                f"--regions ({', '.join(NAMED_REGIONS)}), or say that it is not to be scored: {UNSCORED}={left[0]}"
            )


def scored_regions(regions: Regions | None, truth: Labels) -> tuple[Regions | None, frozenset[int]]:
    """The regions to score, and the values that are left out on purpose.

    BraTS renumbered its labels twice: `brats` on a data set with its own WT, TC and ET means the data set's.
    """
    if regions == NAMED_REGIONS["brats"] and truth.overlapping and truth.structures.keys() == regions.keys():
        regions = None
    kept = {name: values for name, values in (regions or {}).items() if name != UNSCORED}
    return kept or None, frozenset((regions or {}).get(UNSCORED, ()))
