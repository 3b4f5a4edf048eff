"""Preparing a data set: what is stored is right, a second run continues, a bad case does not stop the rest."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest

from support.cases import from_network
from veloxseg.cli import main
from veloxseg.dataset.check import check_dataset
from veloxseg.dataset.dataset import Case, Dataset
from veloxseg.dataset.layouts import open_dataset
from veloxseg.errors import DatasetError
from veloxseg.phantom.write import write_dataset
from veloxseg.prepare.prepare import Settings, prepare
from veloxseg.prepare.store import Prepared
from veloxseg.train.run_folder import data_hash

SETTINGS = Settings(spacing=(2, 2, 2), patch=(32, 32, 32), folds=3)


def test_prepared_cases_hold_image_label_and_points(make_dataset: Callable[..., Dataset], tmp_path: Path) -> None:
    prepared = prepare(make_dataset(5), tmp_path / "out", SETTINGS)
    assert prepared.plan.reference == "ct"
    for case in prepared.cases:
        image, label = prepared.image(case.name), prepared.label(case.name)
        assert image.dtype == np.float16
        assert image.shape[1:] == label.shape
        assert np.isfinite(image).all()
        (points,) = prepared.foreground(case.name).values()
        assert (label[tuple(points.T)] == 1).all()
        back = from_network(np.asarray(label), prepared.placement(case.name))
        assert back.shape == (40, 32, 20)
        assert abs(back.sum() * 16 / (4 / 3 * np.pi * 7**3) - 1) < 0.15  # the lesion's volume in mm³
        inside, body = image[1][label == 1], image[1][(image[0] > -1) & (label == 0)]
        assert np.median(inside) > np.median(body) + 1  # PET, from its own grid, is hot where CT's label is
    split = prepared.split()
    assert [len(split.train), len(split.validation), len(split.test)] == [3, 1, 1]
    assert len(prepared.folds) == 3
    with pytest.raises(DatasetError, match="has folds 0 to 2"):
        prepared.split(3)


def test_second_run_continues(make_dataset: Callable[..., Dataset], tmp_path: Path) -> None:
    dataset, out = make_dataset(4), tmp_path / "out"
    prepare(dataset, out, SETTINGS)
    files = sorted((out / "data").iterdir())
    times = {f: f.stat().st_mtime_ns for f in files}
    content = {f: f.read_bytes() for f in files}
    (out / "data" / "case_1.safetensors").unlink()
    damaged = out / "data" / "case_2.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    prepare(dataset, out, SETTINGS)
    redone = {f.name.split(".")[0] for f in files if f.stat().st_mtime_ns != times[f]}
    assert redone == {"case_1", "case_2"}
    assert {f: f.read_bytes() for f in files} == content
    # another patch needs no other voxels; another spacing does
    prepare(dataset, out, Settings(spacing=(2, 2, 2), patch=(64, 32, 32)))
    assert Prepared.open(out).plan.patch == (64, 32, 32)
    assert (out / "data" / "case_0.safetensors").stat().st_mtime_ns == times[out / "data" / "case_0.safetensors"]
    prepare(dataset, out, Settings(spacing=(3, 3, 3), patch=(32, 32, 32)))
    assert (out / "data" / "case_0.safetensors").stat().st_mtime_ns != times[out / "data" / "case_0.safetensors"]
    assert not [f for f in (out / "data").iterdir() if f.name.startswith(".")]


def test_touched_files_are_the_same_data_and_changed_voxels_are_not(
    make_dataset: Callable[..., Dataset], write_case: Callable[..., Case], tmp_path: Path
) -> None:
    """A training goes on with data that were copied or prepared elsewhere, but not with other data."""
    dataset = make_dataset(4)
    here = data_hash(prepare(dataset, tmp_path / "here", SETTINGS))
    for case in dataset.cases:
        for path in case.images.values():
            os.utime(path, (1, 1))
    assert data_hash(prepare(dataset, tmp_path / "here", SETTINGS)) == here
    assert data_hash(prepare(dataset, tmp_path / "there", SETTINGS)) == here
    write_case(tmp_path / "raw", "case_1", seed=77)
    assert data_hash(prepare(dataset, tmp_path / "here", SETTINGS)) != here


def test_bad_cases_are_named(make_dataset: Callable[..., Dataset], tmp_path: Path, capsys: Any) -> None:
    dataset = make_dataset(3)
    dataset = replace(dataset, cases=tuple(replace(case, split="train") for case in dataset.cases))
    dataset.cases[1].images["pet"].write_bytes(b"not an image")
    with pytest.raises(DatasetError, match="case_1"):
        prepare(dataset, tmp_path / "out", SETTINGS)
    dataset.cases[2].images["ct"].unlink()
    with pytest.raises(DatasetError, match="2 of 3 cases cannot be used"):
        prepare(dataset, tmp_path / "out", SETTINGS)
    listed = capsys.readouterr().err
    assert "case_1" in listed
    assert "case_2" in listed
    assert not (tmp_path / "out" / "cases.json").exists()


def test_parallel_gives_the_same_files(make_dataset: Callable[..., Dataset], tmp_path: Path) -> None:
    dataset = make_dataset(3)
    for workers in (1, 2):
        prepare(dataset, tmp_path / str(workers), Settings(spacing=(2, 2, 2), patch=(32, 32, 32), workers=workers))
    for file in (tmp_path / "1" / "data").iterdir():
        assert file.read_bytes() == (tmp_path / "2" / "data" / file.name).read_bytes()


def test_command_line_with_pictures(write_case: Callable[..., Case], tmp_path: Path, capsys: Any) -> None:
    for i in range(3):
        write_case(tmp_path / "raw files", f"Fall ä{i}", seed=i)
    images = {"ct": "{case}/ct.nii.gz", "pet": "{case}/pet.nii.gz"}
    table = {"images": images, "label": "{case}/label.nii.gz", "labels": {"lesion": 1}}
    (tmp_path / "raw files" / "cases.json").write_text(json.dumps(table), encoding="utf-8")
    out = tmp_path / "prepared files"
    arguments = ["prepare", str(tmp_path / "raw files"), "-o", str(out), "--workers", "1"]
    assert main([*arguments, "--normalise", "ct=none", "--pictures"]) == 0
    assert Prepared.open(out).plan.modalities[0].normalisation.scheme == "none"
    assert (out / "pictures" / "Fall ä1.png").read_bytes()[:4] == b"\x89PNG"
    assert main([*arguments, "--normalise", "ct"]) == 2
    assert main([*arguments, "--patch", "30", "32", "32"]) == 2
    assert main(["prepare", str(tmp_path / "nowhere"), "-o", str(out)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_folds_that_came_with_the_data_are_honoured(make_dataset: Callable[..., Dataset], tmp_path: Path) -> None:
    folds = ((("case_0", "case_1", "case_2"), ("case_3", "case_4")), (("case_3", "case_4"), ("case_0",)))
    prepared = prepare(replace(make_dataset(5), folds=folds), tmp_path / "out", SETTINGS)
    for number, (train, validation) in enumerate(folds):
        split = prepared.split(number)
        assert (split.train, split.validation) == (train, validation)
        assert not set(split.test) & {*train, *validation}


@pytest.mark.shared
def test_dicom_with_contours_prepares_like_the_nifti(shared: Path, tmp_path: Path) -> None:
    """One patient as DICOM series with RTSTRUCT and as NIfTI: the same network input and nearly the same label."""
    results = {}
    for kind, root, images, label in (
        ("dicom", "sts_dicom", {"ct": "CT/image", "pet": "PET/image"}, "CT/mask/RS.dcm"),
        ("nifti", "sts_petct", {"ct": "CT_image.nii.gz", "pet": "PET_image.nii.gz"}, "CT_mask.nii.gz"),
    ):
        folder = shared / "data" / root / "STS_002"
        case = Case(name="x", patient="x", images={n: folder / f for n, f in images.items()}, label=folder / label)
        dataset = Dataset(
            name=kind,
            layout="table",
            root=folder,
            modalities=("ct", "pet"),
            labels={"background": 0, "tumour": 1},
            cases=(case,),
        )
        prepared = prepare(dataset, tmp_path / kind, Settings(spacing=(2, 2, 3.27), patch=(32, 32, 32)))
        results[kind] = np.array(prepared.image("x"), np.float32), np.array(prepared.label("x"))
    (image, label), (other_image, other_label) = results["dicom"], results["nifti"]
    assert 2 * (label & other_label).sum() / (label.sum() + other_label.sum()) > 0.9
    assert np.abs(image[1] - other_image[1]).max() < 0.02
    assert np.corrcoef(image[0].ravel(), other_image[0].ravel())[0, 1] > 0.999


def test_damaged_store_is_one_clear_line(make_dataset: Callable[..., Dataset], tmp_path: Path) -> None:
    prepared = prepare(make_dataset(3), tmp_path / "out", SETTINGS)
    file = tmp_path / "out" / "data" / "case_0.safetensors"
    whole = file.read_bytes()
    for damage in (b"", whole[:4], whole[:300], whole[:-1], b"\xff" * 64, b"\x02\0\0\0\0\0\0\0[]", b"\x80\x04K\x01."):
        file.write_bytes(damage)
        with pytest.raises(DatasetError, match="run `veloxseg prepare` again") as error:
            prepared.image("case_0")
        assert "\n" not in str(error.value)
    file.unlink()
    with pytest.raises(DatasetError, match="cannot be read"):
        prepared.label("case_0")
    with pytest.raises(DatasetError, match="not a prepared data set"):
        Prepared.open(tmp_path)


def test_the_plan_does_not_know_the_test_cases(tmp_path: Path) -> None:
    """Changing a test case changes neither fingerprint nor plan."""
    folder = write_dataset(tmp_path / "data", "nnunet", 3, size=(32, 24, 40), test_cases=1)
    settings = Settings(patch=(32, 32, 32))
    prepare(open_dataset(folder), tmp_path / "first", settings)
    scan = next((folder / "imagesTs").glob("*_0000.nii.gz"))
    image = nib.load(scan)
    nib.save(nib.Nifti1Image(image.get_fdata().astype("float32") + 500, image.affine), scan)
    prepare(open_dataset(folder), tmp_path / "second", settings)
    for name in ("plan.json", "fingerprint.json"):
        assert (tmp_path / "first" / name).read_text() == (tmp_path / "second" / name).read_text()


def renamed_copy(case: Case, folder: Path, name: str) -> Case:
    """The same scans under other names, not compressed, with their first axis stored the other way round."""
    images = {}
    for modality, file in case.images.items():
        scan = nib.load(file)
        turned = nib.as_closest_canonical(scan).slicer[::-1]
        images[modality] = folder / f"{name}_{modality}.nii"
        nib.save(nib.Nifti1Image(np.asarray(turned.dataobj), turned.affine), images[modality])
    assert case.label is not None
    label = nib.as_closest_canonical(nib.load(case.label)).slicer[::-1]
    nib.save(label, folder / f"{name}_label.nii")
    return Case(name=name, patient=name, images=images, label=folder / f"{name}_label.nii")


def test_the_same_scan_in_train_and_test_is_refused(make_dataset: Callable[..., Dataset], tmp_path: Path) -> None:
    dataset = make_dataset(4)
    copy = renamed_copy(dataset.cases[1], tmp_path, "stranger")
    with_copy = replace(dataset, cases=(*dataset.cases, replace(copy, split="test")))
    with pytest.raises(DatasetError, match=r"case_1 \(\w+\) and stranger \(test\) hold the same ct scan"):
        prepare(with_copy, tmp_path / "out", SETTINGS)
    (problem,) = (p for p in check_dataset(with_copy).problems if p.kind == "duplicate")
    assert (problem.level, problem.case) == ("error", "stranger")
    assert "the same voxels as case case_1 (ct, train and test)" in problem.problem


def test_the_same_scan_twice_in_one_part_is_a_warning(
    make_dataset: Callable[..., Dataset], tmp_path: Path, capsys: Any
) -> None:
    dataset = make_dataset(4)
    copy = replace(renamed_copy(dataset.cases[1], tmp_path, "stranger"), patient=dataset.cases[1].patient)
    with_copy = replace(dataset, cases=(*dataset.cases, copy))
    prepare(with_copy, tmp_path / "out", SETTINGS)
    assert "stranger and case_1 hold the same ct scan" in capsys.readouterr().err
    (problem,) = (p for p in check_dataset(with_copy).problems if p.kind == "duplicate")
    assert problem.level == "warning"


def test_unlabelled_test_cases_leave_all_labelled_ones_to_training(
    make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    dataset = make_dataset(6)
    unlabelled = replace(dataset.cases[5], label=None, split="test")
    split = prepare(replace(dataset, cases=(*dataset.cases[:5], unlabelled)), tmp_path / "out", SETTINGS).split()
    assert (len(split.train), len(split.validation), split.test) == (4, 1, ())


def test_cases_json_holds_the_content_of_every_scan(make_dataset: Callable[..., Dataset], tmp_path: Path) -> None:
    prepared = prepare(make_dataset(3), tmp_path / "out", SETTINGS)
    scans = [scan for case in prepared.cases for scan in case.scans.values()]
    assert len(set(scans)) == 6
    assert str(tmp_path) not in (tmp_path / "out" / "cases.json").read_text()
    listing = json.loads((tmp_path / "out" / "cases.json").read_text())
    for entry in listing["cases"]:
        del entry["scans"]
    (tmp_path / "out" / "cases.json").write_text(json.dumps(listing))  # as older versions wrote it
    learning = Prepared.open(tmp_path / "out").learning(prepared.split(), ("ct",))
    assert not learning.by_content
    assert prepared.learning(prepared.split(), ("ct",)).by_content
