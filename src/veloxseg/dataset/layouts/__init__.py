"""Data-set layouts: each module reads one archive's habits into a `Dataset`.

A layout module has `recognises(path)`, quick and never raising for a foreign folder, and `read(path)`.
"""

import importlib
import os
from pathlib import Path

from veloxseg.dataset.dataset import Case, Dataset
from veloxseg.dataset.naming import raw_dataset
from veloxseg.errors import ConfigError, DatasetError, VeloxSegError, shown

__all__ = ["LAYOUTS", "Case", "Dataset", "layout_of", "open_dataset"]

# name on the command line -> what `--layout auto` looks for, in this order
LAYOUTS = {
    "prepared": "a folder made by `veloxseg prepare`: plan.json, cases.json, sources.json",
    "table": "a .csv or .json list of cases, or a folder with cases.csv or cases.json",
    "nnunet": "dataset.json with channel_names, imagesTr/<case>_0000.<ending>",
    "msd": "dataset.json with modality, imagesTr, labelsTr (Medical Segmentation Decathlon)",
    "hecktor": "imagesTr/<centre>-<nnn>__CT.nii.gz and __PT.nii.gz",
    "autopet": "PETCT_<id>/<study>/{CTres,SUV,SEG}.nii.gz",
    "brats": "<case>/<case>_t1ce.nii.gz, <case>-t1c.nii.gz, or {HGG,LGG}/<case>/VSD.Brain.*/*.mha",
    "folder": "scans alone: <case>_0000.nii.gz, <case>.nii.gz, one file, or a DICOM folder",
}


def open_dataset(path: str | Path, layout: str = "auto") -> Dataset:
    """Reads the list of cases; no scan is opened. `902` and `Dataset902_STS` are looked for in nnUNet_raw."""
    path = Path(path) if os.path.exists(path) else raw_dataset(str(path)) or Path(path)
    if layout == "auto":
        name = layout_of(path)
        if name is None:
            raise DatasetError(
                f"{shown(path)} has no known layout ({', '.join(LAYOUTS)}); name it by --layout or list the cases in a "
                "cases.csv"
            )
        return _read(name, path)
    if layout not in LAYOUTS:
        raise ConfigError(f"layout {layout!r} is unknown; choose auto, {', '.join(LAYOUTS)}")
    return _read(layout, path)


def layout_of(path: Path) -> str | None:
    """The first layout that recognises what lies at `path`; None if none does."""
    if not os.path.exists(path):  # and not Path.exists, which fails for names that are too long
        raise DatasetError(f"{shown(path)} does not exist; give a data-set folder or a .csv/.json list of cases")
    return next((name for name in LAYOUTS if _module(name).recognises(path)), None)


def _module(name: str):  # type: ignore[no-untyped-def]
    return importlib.import_module(f"veloxseg.dataset.layouts.{name}")


def _read(name: str, path: Path) -> Dataset:
    """What a description from outside may hold is endless; what no layout foresaw is still one clear line."""
    try:
        dataset: Dataset = _module(name).read(path)
    except VeloxSegError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError, OSError) as error:
        raise DatasetError(
            f"{path} is not a sound {name} data set ({shown(error)}); compare its description with {LAYOUTS[name]}"
        ) from error
    return dataset
