"""The true things that lies are told about: made once in a folder, and copied for each attack."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.models import FORMS, build_plan, build_scans, save_model
from support.scan_samples import write_samples
from support.tiny_training import TINY, plan_of, write_prepared

VOXELS = re.compile(r"\.(dcm|img|z?raw)|^series")  # files that belong to a header, or are DICOM
SMALL = (40, 36, 30)
SETTINGS = {
    "model": "tiny",
    "batch": 2,
    "epochs": 3,
    "steps_per_epoch": 1,
    "warmup_epochs": 0,
    "validate_every": 1,
    "overlap": 0,
    "save_seconds": 0,
    "threads": 1,
    "teachers": False,
}


class Bench:
    """Each property is a path; what it holds is never changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def once(self, name: str, make: Callable[[Path], Any]) -> Path:
        """What `make` puts at a path of this name, the first time that it is asked for."""
        path = self.folder / name
        if not path.exists():
            aside = self.folder / f".{name}"  # a process that dies amid making leaves nothing half made
            shutil.rmtree(aside, ignore_errors=True)
            make(aside)
            aside.rename(path)
        return path

    @property
    def samples(self) -> dict[str, Path]:
        """A scan of each type, by name."""
        root = self.once("samples", write_samples)
        names = {"series": "series", "seg": "seg.dcm", "rtstruct": "rt.dcm"}
        files = {path.name: path for path in root.iterdir() if not VOXELS.search(path.name)}
        return files | {name: root / file for name, file in names.items()}

    @property
    def model(self) -> Path:
        return self.once("model", lambda path: save_model(path, build_plan()))

    def exported(self, form: str) -> Path:
        from veloxseg.runtimes.export import export

        return self.once(form, lambda path: export(self.model, path, form))

    @property
    def quick_model(self) -> Path:
        """The model for the runtime that opens quickest."""
        return self.exported(FORMS[0])

    @property
    def scans(self) -> Path:
        """ct.nii.gz and pet.nii.gz of one case."""

        def make(path: Path) -> None:
            from veloxseg.image import write

            path.mkdir()
            for name, volume in build_scans(SMALL).items():
                write(volume, path / f"{name}.nii.gz")

        return self.once("scans", make)

    @property
    def prepared(self) -> Path:
        split = {"a": "train", "b": "train", "c": "validation"}
        return self.once("prepared", lambda path: write_prepared(path, plan_of(), split))

    @property
    def run(self) -> Path:
        """A training that is done but for its last steps: the newest checkpoint is taken away."""

        def make(path: Path) -> None:
            train(self.prepared, path)
            max((path / "checkpoints").glob("*.safetensors")).unlink()

        return self.once("run", make)

    @property
    def dataset(self) -> Path:
        """Two cases in nnU-Net's layout, and lists of the same as CSV and JSON."""
        return self.once("dataset", _write_dataset)


def train(prepared: Path, run: Path, *, resume: bool = False) -> None:
    """A training of seconds, without pictures. What is patched is put back: the tests share this process."""
    from unittest import mock

    from veloxseg.model.config import PRESETS
    from veloxseg.train import loop
    from veloxseg.train.display import Display

    with mock.patch.dict(PRESETS, tiny=TINY), mock.patch.multiple(Display, draw=nothing, _tensorboard=nothing):
        loop.train(prepared, run, SETTINGS, resume=resume)


def nothing(*_: object) -> None:
    """Stands in for what takes time and is not under attack."""


def predict(model: Path, scans: Path, output: Path) -> list[object]:
    """The arguments of a prediction of one case."""
    inputs = [f"{name}={scans / name}.nii.gz" for name in ("ct", "pet")]
    return ["predict", "-m", model, "-i", inputs[0], "-i", inputs[1], "-o", output, "--threads", 1, "--overlap", 0]


def _write_dataset(path: Path) -> None:
    import numpy as np

    from veloxseg.files import write_json
    from veloxseg.image import Volume, write

    rows = []
    for part in ("imagesTr", "labelsTr"):
        (path / part).mkdir(parents=True)
    for seed, case in enumerate(("one", "two")):
        scans = build_scans((20, 18, 16), seed)
        files = {"ct": f"imagesTr/{case}_0000.nii.gz", "pet": f"imagesTr/{case}_0001.nii.gz"}
        for name, file in files.items():
            write(scans[name], path / file)
        label = (scans["pet"].array > 4).astype(np.uint8)
        files["label"] = f"labelsTr/{case}.nii.gz"
        write(Volume(array=label, geometry=scans["ct"].geometry), path / files["label"])
        rows.append({"case": case, **files})
    description = {
        "channel_names": {"0": "CT", "1": "PET"},
        "labels": {"background": 0, "lesion": 1},
        "numTraining": 2,
        "file_ending": ".nii.gz",
    }
    write_json(path / "dataset.json", description)
    write_json(path / "list.json", {"name": "x", "labels": {"background": 0, "lesion": 1}, "cases": rows})
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    (path / "rows.csv").write_text("\n".join(lines) + "\n")
