"""Synthetic data sets as files: the same seed gives the same bytes, and names are those of the archives."""

import json
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest

from veloxseg.cli import main
from veloxseg.dataset.layouts import open_dataset
from veloxseg.dataset.reading import read_case_images, read_case_label
from veloxseg.files import sha256
from veloxseg.phantom import brain, petct
from veloxseg.phantom.write import LAYOUTS, default_size, write_dataset

TINY = (32, 24, 48)


def load(path: Path) -> nibabel.Nifti1Image:
    image = nibabel.load(path)
    assert b"synthetic" in image.header["descrip"].tobytes()
    return image


@pytest.mark.parametrize("layout", LAYOUTS)
def test_same_seed_same_files(tmp_path: Path, layout: str) -> None:
    hashes = []
    for name, seed in (("a", 4), ("b", 4), ("c", 5)):
        write_dataset(tmp_path / name, layout, 2, seed=seed, size=TINY)
        hashes.append(sha256(tmp_path / name))
    assert hashes[0] == hashes[1] != hashes[2]


def test_nnunet(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", "nnunet", 2, size=TINY, test_cases=1)
    description = json.loads((folder / "dataset.json").read_text())
    assert description["channel_names"] == {"0": "CT", "1": "PET"}
    assert description["numTraining"] == 2
    assert "Synthetic" in description["description"]
    names = sorted(path.name for path in (folder / "imagesTr").iterdir())
    assert names == [f"synthetic_000{case}_000{channel}.nii.gz" for case in (1, 2) for channel in (0, 1)]
    ct, pet = (load(folder / "imagesTs" / f"unseen_0001_000{channel}.nii.gz") for channel in (0, 1))
    label = load(folder / "labelsTs" / "unseen_0001.nii.gz")
    assert np.allclose(label.affine, ct.affine)
    assert pet.shape < ct.shape
    assert set(np.unique(np.asarray(label.dataobj))) <= {0, 1}


def test_files_lie_where_the_phantom_lies(tmp_path: Path) -> None:
    """Stored as most scanners do (LPS); brought back to RAS, the voxels are the phantom's own."""
    folder = write_dataset(tmp_path / "d", "hecktor", 1, seed=2, size=TINY)
    scans = petct.render(petct.draw(2, 0), TINY)
    for name, key in (("CT", "ct"), ("PT", "pet")):
        image = load(folder / "imagesTr" / f"SYN-001__{name}.nii.gz")
        assert nibabel.aff2axcodes(image.affine) == ("L", "P", "S")
        canonical = nibabel.as_closest_canonical(image)
        assert np.allclose(canonical.affine, scans.images[key].geometry.affine, atol=1e-4)
        assert np.allclose(np.asarray(canonical.dataobj), scans.images[key].array)


def test_autopet_and_brats_names(tmp_path: Path) -> None:
    autopet = write_dataset(tmp_path / "autopet", "autopet", 1, size=TINY)
    (study,) = (autopet / "FDG-PET-CT-Lesions" / "PETCT_0000000001").iterdir()
    grids = {path.name.split(".")[0]: load(path) for path in study.iterdir()}
    assert set(grids) == {"CT", "CTres", "PET", "SUV", "SEG"}
    assert grids["SEG"].shape == grids["CTres"].shape == grids["SUV"].shape != grids["CT"].shape
    brats = write_dataset(tmp_path / "brats", "brats", 1, size=(32, 32, 32))
    names = {path.name for path in (brats / "BraTS2021_00001").iterdir()}
    assert names == {f"BraTS2021_00001_{part}.nii.gz" for part in ("t1", "t1ce", "t2", "flair", "seg")}


def test_brats2016_reads_as_the_archive_of_tcia(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "old", "brats2016", 8, size=(48, 56, 24))
    dataset = open_dataset(folder)
    assert (dataset.layout, len(dataset.cases), dataset.modalities) == ("brats", 8, ("t1", "t1ce", "t2", "flair"))
    assert dataset.regions == {"WT": (1, 2, 3, 4), "TC": (1, 3, 4), "ET": (4,)}
    assert {case.name.split("_")[0] for case in dataset.cases} == {"HGG", "LGG"}
    values = {}
    for case in dataset.cases:
        volumes = read_case_images(case, dataset.modalities)
        label = read_case_label(case, dataset.labels, volumes)
        assert label is not None
        values[case.name] = set(np.unique(label.array)) - {0}
        assert (4 in values[case.name]) == case.name.startswith("HGG")
    assert set.union(*values.values()) == {1, 2, 3, 4}
    assert default_size("brats2016") != default_size("brats")


def test_the_scanner_of_brats2016_shows_the_same_tissue_otherwise() -> None:
    size = (40, 48, 36)

    def looks(case: brain.Case, scanner: brain.Scanner, name: str) -> tuple[float, float]:
        """How bright oedema is, and how strong noise is, against healthy tissue."""
        scans, quiet = (brain.render(case, size, s) for s in (scanner, replace(scanner, noise=0.0)))
        array, clean = scans.images[name].array.astype(float), quiet.images[name].array
        healthy = (scans.label.array == 0) & (clean > 0)
        level = np.median(clean[healthy])
        return np.median(clean[scans.label.array == 2]) / level, np.std((array - clean)[healthy]) / level

    cases = [brain.draw(0, index) for index in range(3)]
    for name, contrast in (("flair", 0.92), ("t2", 1.02)):
        bright, noise = np.mean(
            [np.divide(looks(case, brain.OLD, name), looks(case, brain.HOME, name)) for case in cases], axis=0
        )
        assert bright < contrast if contrast < 1 else bright > contrast
        assert noise > 1.5


def test_patients_of_2016_are_not_those_of_2021(tmp_path: Path) -> None:
    labels = []
    for layout in ("brats", "brats2016"):
        folder = write_dataset(tmp_path / layout, layout, 1, size=(32, 32, 32))
        case = open_dataset(folder).cases[0]
        label = read_case_label(
            case, {"background": 0, "a": 1, "b": 2, "c": 3, "d": 4}, read_case_images(case, ("t1",))
        )
        assert label is not None
        labels.append(label.in_ras().array > 0)
    assert not np.array_equal(*labels)


def test_unseen_cases_do_not_depend_on_the_number_of_cases(tmp_path: Path) -> None:
    few = write_dataset(tmp_path / "few", "nnunet", 1, size=TINY, test_cases=1)
    more = write_dataset(tmp_path / "more", "nnunet", 2, size=TINY, test_cases=1)
    assert sha256(few / "imagesTs") == sha256(more / "imagesTs")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cases", "0"], "whole number from 1"),
        (["--cases", "1", "--size", "8", "8", "8"], "16 to 1024"),
        (["--cases", "1", "--test-cases", "1", "--layout", "brats"], "another --seed"),
    ],
)
def test_bad_wishes_give_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["phantom", str(tmp_path / "d"), *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not (tmp_path / "d").exists()


def test_a_full_folder_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    assert main(["phantom", str(tmp_path), "--cases", "1"]) == 2
    assert "not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_files_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    for workers in (1, 2):
        write_dataset(tmp_path / str(workers), "nnunet", 8, size=(16, 16, 24), workers=workers)
    alone, team = (sorted((tmp_path / name).rglob("*.nii.gz")) for name in "12")
    assert len(team) == 24
    for one, other in zip(alone, team, strict=True):
        assert one.read_bytes() == other.read_bytes()
