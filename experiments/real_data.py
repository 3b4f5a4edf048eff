"""Lists of the real data that the experiments use, as `veloxseg prepare` takes them.

    python experiments/real_data.py DATA -o LISTS

DATA holds the folders sts_petct, lgg_mri and msd_hippocampus. Every case may be trained on, so that five folds hold out
each of them once; STS_019 is left out, as its PET and CT do not lie on each other. `sts_mr` is on the grid of the MR,
whose box is smaller than the CT's: on the CT's grid that box would tell where the tumour is.
"""

import argparse
from pathlib import Path
from typing import Any

from veloxseg.files import write_json

LEFT_OUT = ("STS_019",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for name, (labels, cases) in lists(options.data).items():
        listed = [{**case, "split": "train"} for case in cases]
        content = {"name": name, "root": str(options.data.resolve()), "labels": labels, "cases": listed}
        write_json(options.output / f"{name}.json", content)


def lists(data: Path) -> dict[str, tuple[dict[str, int], list[dict[str, Any]]]]:
    patients = [path for path in sorted((data / "sts_petct").glob("STS_*")) if path.name not in LEFT_OUT]
    tumour = {"background": 0, "tumour": 1}
    return {
        "sts": (tumour, [sarcoma(path, "CT", ("CT", "PET")) for path in patients]),
        "sts_mr": (
            tumour,
            [sarcoma(p, "MR_T1", ("CT", "PET", "MR_T1")) for p in patients if (p / "MR_T1_image.nii.gz").is_file()],
        ),
        "lgg": ({"background": 0, "abnormality": 1}, [glioma(path) for path in labels_of(data / "lgg_mri/labelsTr")]),
        "hippocampus": (
            {"background": 0, "anterior": 1, "posterior": 2},
            [hippocampus(path) for path in labels_of(data / "msd_hippocampus/labels")],
        ),
    }


def labels_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.nii*"))


def sarcoma(patient: Path, label: str, scans: tuple[str, ...]) -> dict[str, Any]:
    folder = f"sts_petct/{patient.name}"
    images = {scan.lower().removeprefix("mr_"): f"{folder}/{scan}_image.nii.gz" for scan in scans}
    return {"case": patient.name, **images, "label": f"{folder}/{label}_mask.nii.gz"}


def glioma(label: Path) -> dict[str, Any]:
    name = label.name.removesuffix(".nii.gz")
    images = {s: f"lgg_mri/imagesTr/{name}_{c:04d}.nii.gz" for c, s in enumerate(("t1", "flair", "t1ce"))}
    return {"case": name, **images, "label": f"lgg_mri/labelsTr/{label.name}"}


def hippocampus(label: Path) -> dict[str, Any]:
    name = label.name.split(".")[0]
    return {"case": name, "t1": f"msd_hippocampus/images/{label.name}", "label": f"msd_hippocampus/labels/{label.name}"}


if __name__ == "__main__":
    main()
