"""CASES: whatever names cases is read by one resolver, with the part that was asked for."""

import json
from pathlib import Path

import numpy as np
import pytest

from support.cases import centred, save
from veloxseg.dataset.cases import Selection, for_modalities, open_cases, part_words
from veloxseg.errors import DatasetError

GRID = (4, 4, 4)


def scan(path: Path, volumes: int = 1) -> Path:
    shape = GRID if volumes == 1 else (*GRID, volumes)
    return save(path, np.arange(np.prod(shape), dtype=np.float32).reshape(shape), centred(GRID, (1, 1, 1)))


def names(path: Path, **selection: object) -> list[str]:
    return [case.name for case in open_cases(path, Selection(**selection)).cases]  # type: ignore[arg-type]


def test_a_folder_in_nnunet_naming(tmp_path: Path) -> None:
    for name in ("a_0000", "a_0001", "b_0000", "b_0001"):
        scan(tmp_path / f"{name}.nii.gz")
    dataset = for_modalities(open_cases(tmp_path), ("ct", "pet"))
    assert [case.name for case in dataset.cases] == ["a", "b"]
    assert dataset.cases[0].images["pet"].name == "a_0001.nii.gz"


def test_plain_files_of_one_modality(tmp_path: Path) -> None:
    for name in ("a", "case_0001", "case_0002"):
        scan(tmp_path / f"{name}.nii.gz")
    dataset = for_modalities(open_cases(tmp_path), ("mr",))
    assert [case.name for case in dataset.cases] == ["a", "case_0001", "case_0002"]
    (case,) = for_modalities(open_cases(tmp_path / "a.nii.gz"), ("mr",)).cases
    assert (case.name, case.images["mr"]) == ("a", tmp_path / "a.nii.gz")


def test_a_plain_file_is_not_guessed_to_be_one_of_several(tmp_path: Path) -> None:
    scan(tmp_path / "a.nii.gz")
    with pytest.raises(DatasetError, match="does not say which of ct, pet it is"):
        for_modalities(open_cases(tmp_path / "a.nii.gz"), ("ct", "pet"))


def test_test_images_of_the_decathlon(tmp_path: Path) -> None:
    scan(tmp_path / "imagesTs" / "b_1.nii.gz", volumes=2)
    (tmp_path / "dataset.json").write_text('{"modality": {"0": "FLAIR", "1": "T1w"}, "labels": {"1": "x"}}')
    dataset = for_modalities(open_cases(tmp_path / "imagesTs"), ("t1",))
    assert dataset.cases[0].volumes == {"t1": 1}


def test_a_model_of_one_modality_takes_its_part_of_a_data_set(tmp_path: Path) -> None:
    for name in ("t1", "t1ce", "t2", "flair", "seg"):
        scan(tmp_path / "b" / f"b_{name}.nii.gz")
    dataset = for_modalities(open_cases(tmp_path), ("flair",))
    assert dataset.cases[0].images == {"flair": tmp_path / "b" / "b_flair.nii.gz"}
    with pytest.raises(DatasetError, match="has t1, t1ce, t2, flair, the model takes ct"):
        for_modalities(open_cases(tmp_path), ("ct",))


def test_csv_with_semicolons_and_the_json_of_its_labels(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text("case;ct;label;split\nanna;a.nii;l.nii;test\nben;b.nii;m.nii;\n")
    (tmp_path / "cases.json").write_text('{"labels": {"background": 0, "tumour": 1}}')
    dataset = open_cases(tmp_path)
    assert dataset.labels == {"background": 0, "tumour": 1}
    assert dataset.cases[0].images["ct"] == tmp_path / "a.nii"
    assert part_words(dataset.cases) == "1 test, 1 without a split"
    assert names(tmp_path, split="test") == ["anna"]
    assert names(tmp_path, names=("ben",)) == ["ben"]
    assert names(tmp_path, split="all") == ["anna", "ben"]
    with pytest.raises(DatasetError, match="no case for validation, but 1 test, 1 without a split"):
        names(tmp_path, split="validation")
    with pytest.raises(DatasetError, match="has no case 'bem' of 2; did you mean 'ben'"):
        names(tmp_path, names=("bem",))


def test_a_prepared_folder_is_no_list(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    (tmp_path / "cases.json").write_text('{"cases": [{"name": "a", "patient": "a", "split": "test"}]}')
    with pytest.raises(DatasetError, match="older version and does not say where its scans lie"):
        open_cases(tmp_path)


def test_a_list_chooses_series_volumes_and_regions(tmp_path: Path) -> None:
    rows = [
        {"case": "a", "pet": "dicom", "pet.series": "3", "t1": "x.nii", "t1.volume": 1, "label": "rt.dcm"},
        {"case": "b", "pet": "dicom", "label": "rt.dcm", "label.tumour": "GTV old"},
    ]
    labels = {"background": 0, "tumour": 1}
    listed = {"labels": labels, "pet.series": "PT", "label.tumour": "GTV*|Tumor", "cases": rows}
    (tmp_path / "list.json").write_text(json.dumps(listed))
    first, second = open_cases(tmp_path / "list.json").cases
    assert (first.series, first.volumes, first.rois) == ({"pet": "3"}, {"t1": 1}, {"tumour": ("GTV*", "Tumor")})
    assert (second.series, second.volumes, second.rois) == ({"pet": "PT"}, {}, {"tumour": ("GTV old",)})
    for key in ("pet.number", "label.lung", "case.x"):
        (tmp_path / "list.json").write_text(json.dumps({**listed, key: "1"}))
        with pytest.raises(DatasetError, match=f"{key} = '1' is not MODALITY.series"):
            open_cases(tmp_path / "list.json")


def test_a_data_set_without_splits_says_who_decides(tmp_path: Path) -> None:
    scan(tmp_path / "a.nii.gz")
    with pytest.raises(DatasetError, match="give the PREPARED folder"):
        names(tmp_path, split="test")
