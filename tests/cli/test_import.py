"""`veloxseg import`: DICOM, contours and segments into NIfTI and nnU-Net's folders, and back."""

import json
from pathlib import Path

import nibabel
import numpy as np
import pytest

import veloxseg.image as vio
from support.scan_samples import SHAPE, box_contours, pet_slice, slice_dataset, write_rtstruct, write_series
from veloxseg.cli import main
from veloxseg.dataset.layouts import open_dataset

NAME = "Mustermann"


def run(*words: object, code: int = 0) -> None:
    assert main(["import", *map(str, words)]) == code, words


def study(folder: Path) -> Path:
    """A CT of number 2 and a PET of number 3 in one folder, with contours drawn on the CT."""
    ct = [slice_dataset(z, SeriesNumber=2, SeriesInstanceUID="1.2.3", PatientName=NAME) for z in range(SHAPE[2])]
    pet = [pet_slice(z, SeriesNumber=3, SeriesInstanceUID="1.2.4", PatientName=NAME) for z in range(SHAPE[2])]
    write_series(folder / "ct", ct)
    write_series(folder / "pet", pet)
    regions = {"GTV-1": box_contours(range(1, 3)), "GTV 2": box_contours(range(4, 5))}
    write_rtstruct(folder / "rs.dcm", regions, drawn_on="1.2.3")
    for part in ("ct", "pet"):
        for file in (folder / part).iterdir():
            file.rename(folder / f"{part}-{file.name}")
        (folder / part).rmdir()
    return folder


def test_every_series_of_a_folder_becomes_a_file(tmp_path: Path) -> None:
    folder, out = study(tmp_path / "study"), tmp_path / "out"
    run(folder, "-o", out)
    assert {path.name for path in out.glob("*.nii.gz")} == {"ct-2.nii.gz", "pet-3.nii.gz", "ct-2_rtstruct-4.nii.gz"}
    for name, series in (("ct-2", "CT"), ("pet-3", "PT")):
        expected, found = vio.read(folder, series=series), vio.read(out / f"{name}.nii.gz")
        np.testing.assert_allclose(found.array, expected.array, rtol=1e-6)
        assert found.geometry.same_grid(expected.geometry)
    assert nibabel.load(out / "ct-2.nii.gz").get_data_dtype().kind in "iu"  # Hounsfield units are whole numbers
    facts = {name: json.loads((out / f"{name}.json").read_text()) for name in ("ct-2", "pet-3", "ct-2_rtstruct-4")}
    assert facts["ct-2"]["units"] == "HU"
    assert facts["pet-3"]["units"].startswith("SUV")
    assert facts["ct-2_rtstruct-4"]["labels"] == {"GTV-1": 1, "GTV 2": 2}
    label = vio.read_label(out / "ct-2_rtstruct-4.nii.gz")
    assert np.unique(label.array).tolist() == [0, 1, 2]
    assert label.array[3, 2, 1] == 1
    assert label.array[3, 2, 4] == 2
    written = b"".join(path.read_bytes() for path in out.glob("*.json")).decode()
    assert NAME not in written
    assert "1.2.3" not in written


def test_a_series_that_cannot_be_read_does_not_cost_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = study(tmp_path / "study")
    for path in folder.glob("pet-*"):
        path.unlink()
    bad = [pet_slice(z, SeriesNumber=3, SeriesInstanceUID="1.2.4", PatientWeight=None) for z in range(SHAPE[2])]
    write_series(folder / "more", bad)
    write_series(folder / "localiser", [slice_dataset(0, SeriesNumber=1, SeriesInstanceUID="1.2.9")])
    for part in ("more", "localiser"):
        for file in (folder / part).iterdir():
            file.rename(folder / f"{part}-{file.name}")
        (folder / part).rmdir()
    run(folder, "-o", tmp_path / "out", code=2)
    assert {path.name for path in (tmp_path / "out").glob("*.nii.gz")} == {"ct-2.nii.gz", "ct-2_rtstruct-4.nii.gz"}
    told = capsys.readouterr()
    assert "pet-3: " in told.err
    assert "ct-1: one picture and no volume, left out" in told.out


def test_a_file_becomes_another_type(tmp_path: Path) -> None:
    folder = study(tmp_path / "study")
    run(folder, "-o", tmp_path / "ct.nrrd", "--series", "CT")
    run(tmp_path / "ct.nrrd", "-o", tmp_path / "again.nii.gz")
    first, second = vio.read(folder, series="CT"), vio.read(tmp_path / "again.nii.gz")
    assert np.array_equal(first.array, second.array)
    assert first.geometry.same_grid(second.geometry)


def test_contours_become_a_mask_and_a_segmentation_again(tmp_path: Path) -> None:
    folder = study(tmp_path / "study")
    mask = tmp_path / "mask.nii.gz"
    run(folder / "rs.dcm", "--reference", folder, "--series", "CT", "-o", mask, "--roi", "tumour=GTV*")
    label = vio.read_label(mask)
    assert np.unique(label.array).tolist() == [0, 1]
    reference = write_series(
        tmp_path / "ct", [slice_dataset(z, SeriesNumber=2, SeriesInstanceUID="1.2.3") for z in range(SHAPE[2])]
    )
    run(mask, "--reference", reference, "-o", tmp_path / "seg.dcm")
    back = vio.read_label(tmp_path / "seg.dcm", reference=vio.read(reference))
    assert np.array_equal(back.array, label.array)
    assert back.header["names"] == {"1": "tumour"}  # as the JSON beside the mask says
    run(tmp_path / "seg.dcm", "--reference", reference, "-o", tmp_path / "once-more.nii.gz")
    assert np.array_equal(vio.read_label(tmp_path / "once-more.nii.gz").array, label.array)


def test_pairs_make_a_case_of_an_nnunet_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, raw = study(tmp_path / "study"), tmp_path / "raw"
    common = ["--label", folder / "rs.dcm", "--roi", "tumour=GTV*", "--series", "ct=CT", "--series", "pet=PT"]
    for case in ("one", "two"):
        run(f"ct={folder}", f"pet={folder}", "--case", case, *common, "-o", raw)
    dataset = open_dataset(raw)
    assert dataset.layout == "nnunet"
    assert [case.name for case in dataset.cases] == ["one", "two"]
    assert dataset.modalities == ("ct", "pet")
    assert dataset.labels == {"background": 0, "tumour": 1}
    assert json.loads((raw / "dataset.json").read_text())["numTraining"] == 2
    suv = vio.read(raw / "imagesTr" / "one_0001.nii.gz").array
    np.testing.assert_allclose(suv, vio.read(folder, series="PT").array, rtol=1e-6)
    assert main(["check", str(raw), "--workers", "0"]) in (0, 2)  # whatever it says of such tiny scans, it reads them
    run(f"ct={folder}", f"pet={folder}", "--case", "two", *common, "-o", raw, code=2)
    assert "exists; name another case or folder" in capsys.readouterr().err
    run(f"ct={folder}", "--case", "three", "--series", "ct=CT", "-o", raw, code=2)
    assert "has channels" in capsys.readouterr().err


def test_a_list_becomes_an_nnunet_folder_on_one_grid(tmp_path: Path) -> None:
    folder = study(tmp_path / "study")
    fine = vio.read(folder, series="CT")
    vio.write(fine, tmp_path / "a.nii.gz")
    coarse = fine.geometry.affine @ np.diag([2, 2, 2, 1])
    array = np.full((4, 4, 3), 5.0, np.float32)
    array[0, 0, 0] = 0
    nibabel.save(nibabel.Nifti1Image(array, coarse), tmp_path / "b.nii.gz")
    (tmp_path / "cases.csv").write_text("case,ct,mr,split\nx,a.nii.gz,b.nii.gz,test\n")
    run(tmp_path / "cases.csv", "-o", tmp_path / "raw", "--onto", "ct")
    moved = vio.read(tmp_path / "raw" / "imagesTs" / "x_0001.nii.gz")
    assert moved.geometry.same_grid(fine.geometry)
    assert moved.array[4, 4, 3] == pytest.approx(5, rel=0.01)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nope.nrrd", "-o", "x.nii.gz"], "nope.nrrd does not exist"),
        (["ct=nope", "--case", "a", "-o", "raw"], "nope does not exist"),
        (["ct=.", "-o", "raw"], "add --case NAME"),
        (["a", "b", "-o", "raw"], "write them as ct=PATH pet=PATH"),
        ([".", "-o", "x.nii.gz", "--roi", "tumour"], "no pair; write it as tumour=GTV*"),
    ],
)
def test_what_is_wrong_is_said(words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        run(*words, code=2)
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
