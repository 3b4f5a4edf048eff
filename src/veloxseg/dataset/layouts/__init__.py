"""Data-set layouts: each module reads one archive's habits into a `Dataset`.

A layout module has `recognises(path)`, quick and never raising for a foreign folder, and `read(path)`.
"""

import importlib
from pathlib import Path

from veloxseg.dataset.dataset import Case, Dataset
from veloxseg.errors import ConfigError, DatasetError, VeloxSegError

__all__ = ["LAYOUTS", "Case", "Dataset", "open_dataset"]

# name on the command line -> what `--layout auto` looks for, in this order
LAYOUTS = {
    "table": "a .csv or .json list of cases, or a folder with cases.csv or cases.json",
    "nnunet": "dataset.json with channel_names, imagesTr/<case>_0000.<ending>",
    "msd": "dataset.json with modality, imagesTr, labelsTr (Medical Segmentation Decathlon)",
    "hecktor": "imagesTr/<centre>-<nnn>__CT.nii.gz and __PT.nii.gz",
    "autopet": "PETCT_<id>/<study>/{CTres,SUV,SEG}.nii.gz",
    "brats": "<case>/<case>_t1ce.nii.gz, <case>-t1c.nii.gz, or {HGG,LGG}/<case>/VSD.Brain.*/*.mha",
}


def open_dataset(path: str | Path, layout: str = "auto") -> Dataset:
    """Reads the list of cases; no scan is opened."""
    path = Path(path)
    if not path.exists():
        raise DatasetError(f"{path} does not exist; give a data-set folder or a .csv/.json list of cases")
    if layout == "auto":
        for name in LAYOUTS:
            if _module(name).recognises(path):
                return _read(name, path)
        raise DatasetError(
            f"{path} has no known layout ({', '.join(LAYOUTS)}); name it by --layout or list the cases in a cases.csv"
        )
    if layout not in LAYOUTS:
        raise ConfigError(f"layout {layout!r} is unknown; choose auto, {', '.join(LAYOUTS)}")
    return _read(layout, path)


def _module(name: str):  # type: ignore[no-untyped-def]
    return importlib.import_module(f"veloxseg.dataset.layouts.{name}")


def _read(name: str, path: Path) -> Dataset:
    """What a description from outside may hold is endless; what no layout foresaw is still one clear line."""
    try:
        dataset: Dataset = _module(name).read(path)
    except VeloxSegError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError, OSError) as error:
        from veloxseg.errors import shown

        raise DatasetError(
            f"{path} is not a sound {name} data set ({shown(error)}); compare its description with {LAYOUTS[name]}"
        ) from error
    return dataset
