"""Each archive, tiny and as it unpacks, becomes the same internal form."""

import json
from pathlib import Path

import pytest

from veloxseg.dataset.layouts import open_dataset
from veloxseg.errors import ConfigError, DatasetError
from veloxseg.modality import canonical_name, kind_of


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


def write(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def nnunet(root: Path, **changes: object) -> Path:
    description = {
        "name": "Tiny",
        "channel_names": {"0": "CT", "1": "PET"},
        "labels": {"background": 0, "lesion": 1},
        "numTraining": 2,
        "file_ending": ".nii.gz",
    }
    write(root / "dataset.json", {**description, **changes})
    for case in ("a_01", "b_02"):
        touch(*(root / "imagesTr" / f"{case}_000{n}.nii.gz" for n in (0, 1)), root / "labelsTr" / f"{case}.nii.gz")
    touch(*(root / "imagesTs" / f"t_03_000{n}.nii.gz" for n in (0, 1)))
    return root


def test_nnunet(tmp_path: Path) -> None:
    write(tmp_path / "splits_final.json", [{"train": ["a_01"], "val": ["b_02"]}])
    dataset = open_dataset(nnunet(tmp_path))
    assert (dataset.layout, dataset.name, dataset.modalities) == ("nnunet", "Tiny", ("ct", "pet"))
    assert [(c.name, c.split, c.label is None) for c in dataset.cases] == [
        ("a_01", None, False),
        ("b_02", None, False),
        ("t_03", "test", True),
    ]
    assert dataset.cases[0].images["pet"].name == "a_01_0001.nii.gz"
    assert dataset.folds == ((("a_01",), ("b_02",)),)


def test_nnunet_channels_are_known_by_name_not_by_order(tmp_path: Path) -> None:
    dataset = open_dataset(nnunet(tmp_path, channel_names={"1": "CT", "0": "PET"}))
    assert dataset.cases[0].images["ct"].name == "a_01_0001.nii.gz"


def test_nnunet_regions_and_ignore(tmp_path: Path) -> None:
    labels = {"background": 0, "whole": [1, 2, 3], "core": [2, 3], "enhancing": [3], "ignore": 4}
    dataset = open_dataset(nnunet(tmp_path, labels=labels, regions_class_order=[1, 2, 3]))
    assert dataset.regions == {"whole": (1, 2, 3), "core": (2, 3), "enhancing": (3,)}
    assert dataset.ignore_label == 4
    assert set(dataset.labels.values()) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": {"lesion": 1}}, "background"),
        ({"labels": {"background": 0, "whole": [1, 2]}}, "regions_class_order"),
        ({"labels": {"background": 0, "x": "one"}}, "gives the label x the value one"),
        ({"channel_names": {"0": "CT", "1": "ct"}}, "same name"),
        ({"channel_names": {"first": "CT"}}, "channel_names"),
    ],
)
def test_bad_dataset_json_is_one_clear_line(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(DatasetError, match=message) as error:
        open_dataset(nnunet(tmp_path, **changes))
    assert "\n" not in str(error.value)


def test_msd_with_several_modalities_in_one_file(tmp_path: Path) -> None:
    labels = {"0": "background", "1": "oedema", "2": "tumour"}
    write(
        tmp_path / "dataset.json",
        {"name": "BRATS", "modality": {"0": "FLAIR", "1": "T1w", "2": "t1gd"}, "labels": labels},
    )
    touch(
        tmp_path / "imagesTr" / "B_001.nii.gz",
        tmp_path / "imagesTr" / "._B_001.nii.gz",
        tmp_path / "labelsTr" / "B_001.nii.gz",
    )
    dataset = open_dataset(tmp_path)
    assert (dataset.layout, dataset.modalities) == ("msd", ("flair", "t1", "t1ce"))
    assert len(dataset.cases) == 1
    assert dataset.cases[0].volumes == {"flair": 0, "t1": 1, "t1ce": 2}
    assert dataset.labels == {"background": 0, "oedema": 1, "tumour": 2}


def test_brats_2021(tmp_path: Path) -> None:
    for what in ("flair", "t1", "t1ce", "t2", "seg"):
        touch(tmp_path / "BraTS2021_00005" / f"BraTS2021_00005_{what}.nii.gz")
    dataset = open_dataset(tmp_path)
    assert dataset.layout == "brats"
    assert set(dataset.cases[0].images) == {"t1", "t1ce", "t2", "flair"}
    assert dataset.regions == {"WT": (1, 2, 4), "TC": (1, 4), "ET": (4,)}


def test_newer_brats_visits_belong_to_one_patient(tmp_path: Path) -> None:
    for visit in ("000", "001"):
        for what in ("t2f", "t1n", "t1c", "t2w", "seg"):
            touch(tmp_path / f"BraTS-GLI-00005-{visit}" / f"BraTS-GLI-00005-{visit}-{what}.nii.gz")
    dataset = open_dataset(tmp_path)
    assert [case.patient for case in dataset.cases] == ["BraTS-GLI-00005"] * 2
    assert dataset.cases[0].images["t1ce"].name.endswith("-t1c.nii.gz")
    assert dataset.cases[0].images["flair"].name.endswith("-t2f.nii.gz")
    assert dataset.regions is not None
    assert dataset.regions["ET"] == (3,)


def test_brats_2016(tmp_path: Path) -> None:
    for grade, case in (("HGG", "brats_tcia_pat105_0001"), ("LGG", "brats_tcia_pat202_0001")):
        for number, what in enumerate(("Flair", "T1", "T1c", "T2")):
            folder = tmp_path / grade / case / f"VSD.Brain.XX.O.MR_{what}.3{number}"
            touch(folder / f"VSD.Brain.XX.O.MR_{what}.3{number}.mha")
        touch(tmp_path / grade / case / "VSD.Brain_3more.XX.O.OT.42" / "VSD.Brain_3more.XX.O.OT.42.mha")
    dataset = open_dataset(tmp_path)
    assert [case.name for case in dataset.cases] == ["HGG_brats_tcia_pat105_0001", "LGG_brats_tcia_pat202_0001"]
    assert "MR_T1c." in dataset.cases[0].images["t1ce"].name
    assert dataset.cases[0].label is not None
    assert dataset.regions is not None
    assert dataset.regions["TC"] == (1, 3, 4)


def test_autopet_prefers_the_resampled_ct_and_groups_studies(tmp_path: Path) -> None:
    root = tmp_path / "FDG-PET-CT-Lesions"
    for study in ("one", "two"):
        for file in ("CT", "CTres", "PET", "SUV", "SEG"):
            touch(root / "PETCT_01" / study / f"{file}.nii.gz")
    for file in ("CT", "SUV", "SEG"):
        touch(root / "PETCT_02" / "only" / f"{file}.nii.gz")
    dataset = open_dataset(tmp_path)
    assert dataset.layout == "autopet"
    assert [(c.name, c.patient) for c in dataset.cases] == [
        ("PETCT_01_one", "PETCT_01"),
        ("PETCT_01_two", "PETCT_01"),
        ("PETCT_02", "PETCT_02"),
    ]
    assert dataset.cases[0].images["ct"].name == "CTres.nii.gz"
    assert dataset.cases[0].images["pet"].name == "SUV.nii.gz"
    assert dataset.cases[2].images["ct"].name == "CT.nii.gz"


def test_hecktor(tmp_path: Path) -> None:
    touch(
        *(tmp_path / "imagesTr" / f"CHUM-001__{what}.nii.gz" for what in ("CT", "PT")),
        tmp_path / "labelsTr" / "CHUM-001.nii.gz",
    )
    dataset = open_dataset(tmp_path)
    assert dataset.layout == "hecktor"
    assert dataset.labels == {"background": 0, "GTVp": 1, "GTVn": 2}
    assert dataset.cases[0].images["pet"].name == "CHUM-001__PT.nii.gz"


def test_csv(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text(
        "case,patient,CT,label,split\nä 1,p,a/ct.nii.gz,a/l.nii.gz,train\nb,p,b/ct.nii.gz,,\n"
    )
    (tmp_path / "cases.json").unlink(missing_ok=True)
    dataset = open_dataset(tmp_path)
    assert [case.name for case in dataset.cases] == ["ä 1", "b"]
    assert dataset.cases[0].images == {"ct": tmp_path / "a/ct.nii.gz"}
    assert dataset.cases[0].split == "train"
    assert dataset.cases[1].label is None
    write(tmp_path / "list.json", {"labels": {"liver": 1, "tumour": 2}})
    (tmp_path / "list.csv").write_text("case,ct\na,ct.nii.gz\n")
    assert open_dataset(tmp_path / "list.csv").labels == {"background": 0, "liver": 1, "tumour": 2}


def test_pattern_describes_a_folder_in_a_few_lines(tmp_path: Path) -> None:
    for name in ("S_1", "S_2", "S_3"):
        touch(tmp_path / "data" / name / "CT.nii.gz", tmp_path / "data" / name / "mask.nii.gz")
    touch(tmp_path / "data" / "S_1" / "PET.nii.gz")
    images = {"ct": "{case}/CT.nii.gz", "pet": "{case}/PET.nii.gz"}
    table = {
        "root": "data",
        "labels": {"tumour": 1},
        "images": images,
        "label": "{case}/mask.nii.gz",
        "exclude": ["S_2"],
    }
    dataset = open_dataset(write(tmp_path / "list.json", table))
    assert [(c.name, sorted(c.images)) for c in dataset.cases] == [("S_1", ["ct", "pet"]), ("S_3", ["ct"])]
    assert dataset.modalities == ("ct", "pet")


@pytest.mark.parametrize(
    "row",
    [
        {"case": "../evil", "ct": "a.nii.gz"},
        {"case": "a/b", "ct": "a.nii.gz"},
        {"case": ".hidden", "ct": "a.nii.gz"},
        {"case": "a", "ct": "../a.nii.gz"},
        {"case": "a", "ct": "x/../../a.nii.gz"},
        {"case": "a", "ct": "a.nii.gz", "label": "../../etc/passwd"},
        {"case": "a", "ct": "a.nii.gz", "split": "validate"},
        {"ct": "a.nii.gz"},
    ],
)
def test_names_from_outside_cannot_leave_their_folder(tmp_path: Path, row: dict[str, str]) -> None:
    with pytest.raises(DatasetError) as error:
        open_dataset(write(tmp_path / "list.json", {"cases": [row]}))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["9" * 400, "a\0b", "/" + "x" * 300, "list.json/ct.nii.gz"])
def test_a_path_that_no_file_can_have_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "list.json").write_text(json.dumps({"cases": [{"case": "a", "ct": name}]}))
    with pytest.raises(DatasetError, match="which is no path"):
        open_dataset(tmp_path / "list.json")


def test_unknown_folder_and_layout(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no known layout"):
        open_dataset(tmp_path)
    with pytest.raises(DatasetError, match="does not exist"):
        open_dataset(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="choose auto"):
        open_dataset(tmp_path, "dicomdir")


def test_modality_names_and_kinds() -> None:
    assert [canonical_name(n) for n in ("PT", "T1Gd", " CT ", "T2w", "my scan")] == [
        "pet",
        "t1ce",
        "ct",
        "t2",
        "my_scan",
    ]
    assert [kind_of(n) for n in ("CT", "SUV", "t1ce", "FLAIR", "mri", "ultrasound")] == [
        "ct",
        "pet",
        "mr",
        "mr",
        "mr",
        "other",
    ]


@pytest.mark.parametrize("folder", ["imagesTr", "labelsTr", "imagesTs"])
def test_the_same_case_in_two_files_is_refused_with_both_names(tmp_path: Path, folder: str) -> None:
    """One of both was picked before, silently: whichever the description's ending named, or the last by name."""
    several = nnunet(tmp_path / "several")
    single = tmp_path / "single"
    write(single / "dataset.json", {"modality": {"0": "MRI"}, "labels": {"0": "background", "1": "x"}})
    touch(*(single / name / "c.nii.gz" for name in ("imagesTr", "labelsTr", "imagesTs")))
    centres = tmp_path / "centres"
    touch(*(centres / name / f"CHUM-001__{m}.nii.gz" for name in ("imagesTr", "imagesTs") for m in ("CT", "PT")))
    touch(centres / "labelsTr" / "CHUM-001.nii.gz")
    for root in (several, single, centres):
        open_dataset(root)
        first = sorted((root / folder).iterdir())[0]
        copy = first.name.removesuffix(".gz")
        touch(first.with_name(copy))
        with pytest.raises(DatasetError) as caught:
            open_dataset(root)
        assert f"twice ({copy}, {first.name})" in str(caught.value)


def test_the_same_scan_in_two_files_of_a_case_folder(tmp_path: Path) -> None:
    for name, scans, copy in (
        ("brats", [f"c1/c1_{m}.nii.gz" for m in ("flair", "t1", "t1ce", "t2", "seg")], "c1/c1_t1.nii"),
        ("autopet", [f"PETCT_1/s/{m}.nii.gz" for m in ("CTres", "SUV", "SEG")], "PETCT_1/s/SEG.nii"),
    ):
        touch(*(tmp_path / name / scan for scan in scans))
        assert len(open_dataset(tmp_path / name).cases) == 1
        touch(tmp_path / name / copy)
        with pytest.raises(DatasetError, match="twice"):
            open_dataset(tmp_path / name)


@pytest.mark.parametrize("ending", [".png", "", "nii.gz/../..", ".dcm"])
def test_nnunet_with_an_ending_that_is_no_image(tmp_path: Path, ending: str) -> None:
    with pytest.raises(DatasetError, match="file_ending"):
        open_dataset(nnunet(tmp_path, file_ending=ending))
