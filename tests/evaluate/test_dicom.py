"""DICOM on both sides: the SEG that predict wrote, against RTSTRUCT or SEG labels, matched by names."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.scan_samples import box_contours, write_rtstruct, write_series
from veloxseg.dataset.cases import open_cases
from veloxseg.dataset.reading import read_label_of
from veloxseg.errors import ImageError
from veloxseg.evaluate import evaluate_folder, write_report
from veloxseg.image import Volume, write_dicom_seg


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A list of one case: a CT series, contours called GTV-1 and Heart, and labels tumour 3 and heart 7."""
    write_series(tmp_path / "anna" / "ct")
    regions = {"Heart": box_contours(range(4, 5)), "GTV-1": box_contours(range(1, 3))}
    write_rtstruct(tmp_path / "anna" / "rs.dcm", regions)
    listed = {
        "labels": {"background": 0, "tumour": 3, "heart": 7},
        "label.tumour": "gtv*|tumor",
        "images": {"ct": "{case}/ct"},
        "label": "{case}/rs.dcm",
    }
    (tmp_path / "list.json").write_text(json.dumps(listed))
    return tmp_path


def truth(data: Path) -> Volume:
    dataset = open_cases(data / "list.json")
    return read_label_of(dataset.cases[0], dataset.labels)


def predict(data: Path, values: dict[int, int], names: dict[int, str]) -> Path:
    """What a model that numbers the structures in its own way would write as a DICOM SEG, beside its record."""
    label = truth(data)
    array = np.zeros_like(label.array)
    for old, new in values.items():
        array[label.array == old] = new
    (data / "predictions").mkdir()
    mask = replace(label, array=array, source=data / "anna" / "ct")
    write_dicom_seg(mask, data / "anna" / "ct", data / "predictions" / "anna.dcm", label_names=names)
    return data / "predictions"


def test_regions_are_found_by_their_patterns_and_get_their_labels_values(data: Path) -> None:
    array = truth(data).array
    assert set(np.unique(array)) == {0, 3, 7}
    assert (array[:, :, 1:3] == 3).any()
    assert (array[:, :, 4] == 7).any()


def test_a_region_that_is_not_there_is_named(data: Path) -> None:
    listed = json.loads((data / "list.json").read_text())
    (data / "list.json").write_text(json.dumps({**listed, "label.tumour": "PTV*"}))
    with pytest.raises(ImageError, match=r"no region 'PTV\*', expected one of Heart, GTV-1"):
        truth(data)


def test_a_region_that_may_be_missing(data: Path) -> None:
    listed = json.loads((data / "list.json").read_text())
    (data / "list.json").write_text(json.dumps({**listed, "label.tumour": "PTV*|"}))
    assert set(np.unique(truth(data).array)) == {0, 7}


@pytest.mark.parametrize("record", [True, False])
def test_a_dicom_seg_is_scored_against_contours_by_names(data: Path, record: bool) -> None:
    predictions = predict(data, {3: 1, 7: 2}, {1: "tumour", 2: "heart"})
    if record:
        plan = {"labels": {"background": 0, "tumour": 1, "heart": 2}}
        (predictions / "anna.json").write_text(json.dumps({"models": [], "plan": plan}))
    found = evaluate_folder(predictions, data / "list.json")
    assert found.structures == {"tumour": (3,), "heart": (7,)}
    assert [found.summary("predictions", name, "dice").mean for name in found.structures] == [1, 1]
    assert "predictions: Dice 1.000" in write_report(found, data / "report").read_text()


def test_a_dicom_seg_may_be_the_label(data: Path) -> None:
    predictions = predict(data, {3: 1, 7: 2}, {1: "GTV 1", 2: "Heart"})
    listed = json.loads((data / "list.json").read_text())
    listed |= {"label": "predictions/{case}.dcm"}
    (data / "segs.json").write_text(json.dumps(listed))
    dataset = open_cases(data / "segs.json")
    assert np.array_equal(read_label_of(dataset.cases[0], dataset.labels).array, truth(data).array)
    assert evaluate_folder(predictions, predictions).mean() == 1  # a folder of them is a folder of label maps
