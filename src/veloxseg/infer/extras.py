"""What may be written beside a mask: statistics and a picture."""

from pathlib import Path

from veloxseg.files import atomic_path, write_json
from veloxseg.infer.result import Segmentation
from veloxseg.infer.scans import Scans
from veloxseg.io import Volume
from veloxseg.prepare.dataset import without_suffix
from veloxseg.prepare.modality import kind_of
from veloxseg.prepare.resample import resample_image

__all__ = ["preview_extra", "statistics_extra"]


def statistics_extra(result: Segmentation, scans: Scans, path: Path) -> None:
    """`<case>_statistics.json`."""
    from veloxseg.infer.statistics import lesion_statistics

    stem = without_suffix(path.name.removesuffix(".dcm"))
    pet = on_mask_grid(result, scans, "pet")
    write_json(path.parent / f"{stem}_statistics.json", lesion_statistics(result, pet))


def preview_extra(result: Segmentation, scans: Scans, path: Path) -> None:
    """`<case>.png`."""
    from veloxseg.infer.preview import draw

    stem = without_suffix(path.name.removesuffix(".dcm"))
    hot = on_mask_grid(result, scans, "pet")
    anatomy = on_mask_grid(result, scans, "ct") or on_mask_grid(result, scans, "mr")
    with atomic_path(path.parent / f"{stem}.png") as temporary:
        draw(result, hot, anatomy, temporary, title=stem)


def on_mask_grid(result: Segmentation, scans: Scans, kind: str) -> Volume | None:
    """The first scan of a kind, on the grid of the mask; None if the case has none."""
    for name in scans:
        if kind_of(name) == kind:
            scan = scans[name]
            if scan.geometry.same_grid(result.geometry):
                return scan
            fill = -1000.0 if kind == "ct" else 0.0
            array = resample_image(scan, result.geometry, "linear", fill)
            return Volume(array=array, geometry=result.geometry)
    return None
