"""Reads scans and labels of any format into NIfTI, and back: DICOM series, RTSTRUCT, DICOM SEG, NRRD, MetaImage.

  a file as another type         import scan.nrrd -o scan.nii.gz
  every series of a folder       import STUDY -o FOLDER
  contours or segments           import rs.dcm --reference CT_FOLDER -o mask.nii.gz
  a mask as DICOM SEG            import mask.nii.gz --reference CT_FOLDER -o mask.dcm --roi tumour=1
  a case, for nnU-Net            import ct=FOLDER pet=FOLDER --case NAME --label RTSTRUCT --roi 'tumour=GTV*' -o RAW
  all cases of a list            import CASES -o RAW

PET from DICOM is in SUV, CT in Hounsfield units. Beside each scan lies a JSON with its grid and units; it holds nothing
of the patient.
"""

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from veloxseg.cli.cases import CASES, add_selection, selection
from veloxseg.image.formats import is_output_name

if TYPE_CHECKING:
    from veloxseg.dataset.dataset import Dataset

SUMMARY = "read DICOM, RTSTRUCT, SEG and other files into NIfTI, and back"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter  # keeps the lines of the text above
    parser.add_argument(
        "input", nargs="+", metavar="INPUT", help=f"a file, a DICOM folder, MODALITY=PATH pairs of one case, or {CASES}"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OUTPUT", help="a file or a folder")
    parser.add_argument("--case", metavar="NAME", help="the name of a case that is given by MODALITY=PATH pairs")
    parser.add_argument("--label", type=Path, metavar="PATH", help="its label: a file, an RTSTRUCT or a DICOM SEG")
    parser.add_argument(
        "--roi", action="append", default=[], metavar="NAME=REGION",
        help="which region of an RTSTRUCT or SEG is which label, with * and |; give it once per label (default: all "
        "regions); for a DICOM SEG as output NAME=VALUE",
    )  # fmt: skip
    parser.add_argument("--reference", type=Path, metavar="PATH", help="the scan on which a DICOM label lies")
    parser.add_argument(
        "--series", action="append", default=[], metavar="X",
        help="which series of a DICOM folder, by modality, number or UID; for pairs MODALITY=X",
    )  # fmt: skip
    parser.add_argument("--volume", metavar="N", help="which volume of a 4-D file")
    parser.add_argument("--onto", metavar="MODALITY", help="bring all scans of a case to the grid of this one")
    add_selection(parser)


def run(arguments: argparse.Namespace) -> int:
    from veloxseg.cli.predict import list_failures
    from veloxseg.console import say
    from veloxseg.dataset.as_files import import_file, import_folder
    from veloxseg.dataset.as_nnunet import import_cases
    from veloxseg.dataset.cases import open_cases
    from veloxseg.errors import ConfigError
    from veloxseg.machine import NOTICE
    from veloxseg.modality import canonical_name

    say(NOTICE)
    rois, first = pairs(arguments.roi, "--roi", "tumour=GTV*"), arguments.input[0]
    onto = None if arguments.onto is None else canonical_name(arguments.onto)
    if "=" in first and not Path(first).exists():
        return list_failures(import_cases(one_case(arguments, rois), arguments.output, onto), 1)
    if len(arguments.input) > 1:
        raise ConfigError("several inputs are scans of one case: write them as ct=PATH pet=PATH with --case NAME")
    source = Path(first)
    if is_output_name(arguments.output.name):
        import_file(
            source,
            arguments.output,
            reference=arguments.reference,
            rois=rois,
            series=one_word(arguments.series),
            volume=whole(arguments.volume),
        )
        return 0
    if is_dicom_folder(source):
        failures = import_folder(source, arguments.output, rois)
        return list_failures(failures, len(failures))
    dataset = open_cases(source, selection(arguments))
    return list_failures(import_cases(dataset, arguments.output, onto), len(dataset.cases))


def one_case(arguments: argparse.Namespace, rois: dict[str, str]) -> "Dataset":
    """The case that MODALITY=PATH pairs describe, as a data set of one."""
    from veloxseg.dataset.dataset import Case, Dataset, safe_name
    from veloxseg.errors import ConfigError, DatasetError, shown
    from veloxseg.modality import canonical_name

    if arguments.case is None:
        raise ConfigError("a case that is given by its scans needs a name: add --case NAME")
    images = {canonical_name(n): Path(path) for n, path in pairs(arguments.input, "input", "ct=PATH").items()}
    if len(images) < len(arguments.input):
        raise ConfigError("a modality is given twice; give each once")
    for path in (*images.values(), *([] if arguments.label is None else [arguments.label])):
        if not path.exists():
            raise DatasetError(f"{shown(path)} does not exist; check the path")
    series = {canonical_name(n): x for n, x in pairs(arguments.series, "--series", "ct=2").items()}
    case = Case(
        name=safe_name(arguments.case, Path("--case")),
        patient=arguments.case,
        images=images,
        label=arguments.label,
        series=series,
        rois={name: tuple(pattern.split("|")) for name, pattern in rois.items()},
    )
    names = list(rois) or ["foreground"]
    return Dataset(
        name=arguments.output.name,
        layout="pairs",
        root=arguments.output,
        modalities=tuple(images),
        labels={"background": 0, **{name: value for value, name in enumerate(names, start=1)}},
        cases=(case,),
    )


def pairs(texts: list[str], option: str, example: str) -> dict[str, str]:
    from veloxseg.errors import ConfigError, shown

    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise ConfigError(f"{option} {shown(text)!r} is no pair; write it as {example}")
        if name in found:
            raise ConfigError(f"{option} names {shown(name)!r} twice; give each once")
        found[name] = value
    return found


def one_word(texts: list[str]) -> str | None:
    return texts[-1] if texts else None


def whole(text: str | None) -> int | None:
    from veloxseg.errors import ConfigError, shown

    if text is not None and not re.fullmatch("[0-9]{1,6}", text):
        raise ConfigError(f"--volume {shown(text)!r} is no number of a volume; write it as --volume 0")
    return None if text is None else int(text)


def is_dicom_folder(path: Path) -> bool:
    """Whether DICOM files lie in a folder or below it, and no list of cases or other layout."""
    from veloxseg.dataset.layouts import layout_of
    from veloxseg.image.dicom.labels import has_dicom

    return path.is_dir() and layout_of(path) in ("folder", None) and has_dicom(path)
