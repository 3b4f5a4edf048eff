"""Folders: nothing is dropped, mistakes are said in one line, and averages say what they rest on."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from veloxseg.dataset.cases import Selection
from veloxseg.errors import ConfigError, DatasetError, GeometryError
from veloxseg.evaluate import evaluate_folder
from veloxseg.evaluate.labels import NAMED_REGIONS, parse_regions
from veloxseg.evaluate.metrics import tolerance_for

from .conftest import AFFINE, cube, save


def test_every_outcome_is_counted(dataset: Path) -> None:
    found = evaluate_folder([dataset / "good", dataset / "bad"], dataset / "labels")
    assert found.structures == {"lesion": (1,)}
    assert found.outcomes("good", "lesion") == {
        "scored": 5,
        "correctly empty": 1,
        "missed": 1,
        "false alarm": 0,
        "no prediction": 0,
    }
    assert found.outcomes("bad", "lesion") == {
        "scored": 5,
        "correctly empty": 0,
        "missed": 0,
        "false alarm": 1,
        "no prediction": 1,
    }
    assert len(found.rows) == 2 * 7
    dice = found.summary("good", "lesion", "dice")
    assert (dice.count, dice.left_out) == (6, 1)
    assert found.summary("bad", "lesion", "dice").count == 7
    assert found.summary("bad", "lesion", "recall").count == 6  # nothing to find in case 5
    assert found.missing == {"good": (), "bad": ("case_6",)}
    assert any("case_6" in line and "failures" in line for line in found.warning_lines())


def test_figures(dataset: Path) -> None:
    found = evaluate_folder(dataset / "good", dataset / "labels")
    dices = found.values("good", "lesion", "dice")
    assert dices[0] == 1
    assert dices[1] == pytest.approx(2 * 125 / (216 + 125))
    assert dices[4] == 0
    assert math.isnan(dices[5])
    assert found.mean() == pytest.approx(np.nanmean(dices))
    assert found.case_dice("good") == {f"case_{n}": dices[n] for n in range(7) if n != 5}
    diagonal = math.hypot(16 * 2, 14 * 2, 12 * 3)
    assert found.values("good", "lesion", "hd95_mm")[4] == pytest.approx(diagonal)  # of the image, not of the crop
    assert found.select("good", "lesion")[0].scores.label_volume_ml == pytest.approx(216 * 12 / 1000)
    lesions = found.lesions("good", "lesion")
    assert (lesions.lesions, lesions.found, lesions.false) == (6, 5, 0)
    assert lesions.false_negative_ml == pytest.approx(216 * 12 / 1000 / 6)  # per case with lesions, as AutoPET


def test_threads_change_nothing(dataset: Path) -> None:
    one = evaluate_folder(dataset / "good", dataset / "labels").to_json()
    two = evaluate_folder(dataset / "good", dataset / "labels", threads=3).to_json()
    del one["provenance"], two["provenance"]
    assert one == two


def test_a_structure_absent_from_a_case_is_a_row_too(tmp_path: Path) -> None:
    save(tmp_path / "l" / "a.nii.gz", cube(1))
    save(tmp_path / "l" / "b.nii.gz", cube(2))
    save(tmp_path / "l" / "c.nii.gz", cube(2))
    save(tmp_path / "p" / "a.nii.gz", cube(1))
    save(tmp_path / "p" / "b.nii.gz", cube(3))
    found = evaluate_folder(tmp_path / "p", tmp_path / "l")
    assert list(found.structures) == ["label 1", "label 2", "label 3"]
    assert [row.scores.outcome for row in found.select("p", "label 1")] == [
        "scored",
        "correctly empty",
        "no prediction",
    ]
    assert [row.scores.outcome for row in found.select("p", "label 3")] == [
        "correctly empty",
        "false alarm",
        "no prediction",
    ]


def test_regions_join_values(tmp_path: Path) -> None:
    label, prediction = cube(2), cube(2)
    label[4:6, 4:6, 4:6], prediction[4:6, 4:6, 4:6] = 4, 1
    save(tmp_path / "l" / "a.nii.gz", label)
    save(tmp_path / "p" / "a.nii.gz", prediction)
    found = evaluate_folder(tmp_path / "p", tmp_path / "l", regions=parse_regions(["brats"]))
    assert [found.values("p", region, "dice")[0] for region in ("WT", "TC", "ET")] == [1, 1, 0]


def test_a_value_outside_all_regions_is_an_error_that_names_it(tmp_path: Path) -> None:
    save(tmp_path / "l" / "a.nii.gz", cube(3))
    save(tmp_path / "p" / "a.nii.gz", cube(3))
    with pytest.raises(DatasetError, match=r"'a' holds label value 3, and no region does .*brats2016.*unscored=3"):
        evaluate_folder(tmp_path / "p", tmp_path / "l", regions=NAMED_REGIONS["brats"])
    found = evaluate_folder(tmp_path / "p", tmp_path / "l", regions=NAMED_REGIONS["brats2016"])
    assert found.summary("p", "TC", "dice").mean == 1
    assert any("no file holds ET" in line for line in found.warning_lines())
    chosen = evaluate_folder(tmp_path / "p", tmp_path / "l", regions=parse_regions(["ET=4", "unscored=3"]))
    assert set(chosen.structures) == {"ET"}


def test_brats_means_the_regions_of_the_data_set(tmp_path: Path) -> None:
    """BraTS 2016 has a core that does not enhance, value 3; by the regions of 2021 a perfect TC was next to nothing."""
    case = tmp_path / "data" / "HGG" / "brats_tcia_pat105_0001"
    label = cube(3)
    label[:4][label[:4] > 0] = 4
    save(case / "VSD.Brain_3more.XX.O.OT.42" / "VSD.Brain_3more.XX.O.OT.42.mha", label)
    for name in ("Flair", "T1", "T1c", "T2"):
        save(case / f"VSD.Brain.XX.O.MR_{name}.1" / f"VSD.Brain.XX.O.MR_{name}.1.mha", label.astype(np.float32))
    save(tmp_path / "p" / f"HGG_{case.name}.nii.gz", label)
    for regions in (None, NAMED_REGIONS["brats"], NAMED_REGIONS["brats2016"]):
        found = evaluate_folder(tmp_path / "p", tmp_path / "data", regions=regions)
        assert [found.summary("p", name, "dice").mean for name in ("WT", "TC", "ET")] == [1, 1, 1]
        assert found.structures["TC"] == (1, 3, 4)


def test_values_are_matched_by_the_names_that_both_sides_give(dataset: Path) -> None:
    """The model calls the lesion 3 and a vessel 1; the data set's lesion is 1."""
    mask = cube(3)
    mask[12:14] = 1
    save(dataset / "other" / "case_0.nii.gz", mask)
    plan = {"labels": {"background": 0, "vessel": 1, "lesion": 3}}
    (dataset / "other" / "case_0.json").write_text(json.dumps({"models": [], "plan": plan}))
    found = evaluate_folder(dataset / "other", dataset / "labels")
    assert found.select("other", "lesion")[0].scores.dice == 1


def test_labels_that_a_model_was_taught_as_one_are_scored_as_one(dataset: Path) -> None:
    label = cube(1)
    label[6:][label[6:] > 0] = 2
    save(dataset / "two" / "labels" / "case_0.nii.gz", label)
    (dataset / "two" / "dataset.json").write_text('{"labels": {"background": 0, "GTVp": 1, "GTVn": 2}}')
    save(dataset / "one" / "case_0.nii.gz", cube(1))
    plan = {"labels": {"background": 0, "tumour": 1}, "merged": {"tumour": {"GTVp": 1, "GTVn": 2}}}
    (dataset / "one" / "case_0.json").write_text(json.dumps({"models": [], "plan": plan}))
    found = evaluate_folder(dataset / "one", dataset / "two" / "labels")
    assert found.structures == {"tumour": (1, 2)}
    assert found.mean() == 1


def test_names_come_from_the_prediction_where_the_labels_have_none(tmp_path: Path) -> None:
    save(tmp_path / "l" / "a.nii.gz", cube(2))
    save(tmp_path / "p" / "a.nii.gz", cube(2))
    record = {"models": [], "plan": {"labels": {"background": 0, "liver": 1, "tumour": 2}}}
    (tmp_path / "p" / "a.json").write_text(json.dumps(record))
    assert "tumour" in evaluate_folder(tmp_path / "p", tmp_path / "l").structures


def test_file_types_may_differ(tmp_path: Path) -> None:
    save(tmp_path / "l" / "a b.é.nii.gz", cube())
    save(tmp_path / "p" / "a b.é.mha", cube())
    assert evaluate_folder(tmp_path / "p", tmp_path / "l").mean() == 1


def test_another_grid_is_refused(dataset: Path) -> None:
    moved = AFFINE.copy()
    moved[0, 3] = 4
    save(dataset / "good" / "case_3.nii.gz", cube(), moved)
    with pytest.raises(GeometryError, match=r"case_3.*good.*4 mm") as error:
        evaluate_folder(dataset / "good", dataset / "labels")
    assert "\n" not in str(error.value)
    save(dataset / "good" / "case_3.nii.gz", cube()[:-1])
    with pytest.raises(GeometryError, match=r"15×14×12 and 16×14×12"):
        evaluate_folder(dataset / "good", dataset / "labels", threads=2)


def test_wrong_folders(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    with pytest.raises(DatasetError, match="does not exist"):
        evaluate_folder(tmp_path / "nowhere", dataset / "labels")
    with pytest.raises(DatasetError, match="holds no image"):
        evaluate_folder(tmp_path / "nothing", dataset / "labels")
    with pytest.raises(DatasetError, match="holds no image and is no data set"):
        evaluate_folder(dataset / "good", tmp_path / "nothing")
    with pytest.raises(DatasetError, match=r"'case_0'.*'case_0_0000'"):
        evaluate_folder(dataset / "images", dataset / "labels")
    save(dataset / "good" / "case_0.nii", cube())
    with pytest.raises(DatasetError, match=r"'case_0' is in .* twice"):
        evaluate_folder(dataset / "good", dataset / "labels")


def test_predictions_without_label_are_said(dataset: Path) -> None:
    save(dataset / "good" / "stranger.nii.gz", cube())
    found = evaluate_folder(dataset / "good", dataset / "labels")
    assert found.extra == {"good": ("stranger",)}
    assert any("stranger" in line for line in found.warning_lines())


def test_what_predict_leaves_beside_is_understood(dataset: Path) -> None:
    save(dataset / "good" / "case_0_lesion_probability.nii.gz", cube())
    model = {"name": "run", "architecture": "veloxseg", "weights_sha256": "ab" * 32}
    record = {"models": [model], "runtime": {"name": "openvino", "threads": 1}}
    for number in range(3):
        (dataset / "good" / f"case_{number}.json").write_text(json.dumps(record), encoding="utf-8")
    (dataset / "good" / "case_3.json").write_text("[1", encoding="utf-8")
    (dataset / "good" / "case_4.json").write_text("[]", encoding="utf-8")
    found = evaluate_folder(dataset / "good", dataset / "labels")
    assert found.extra == {"good": ()}
    assert found.provenance["predicted_by"] == {"good": {"run (veloxseg, weights abababababab) in openvino": 3}}


def test_nothing_but_background(tmp_path: Path) -> None:
    for folder in ("l", "p"):
        save(tmp_path / folder / "a.nii.gz", cube(0))
    with pytest.raises(DatasetError, match="no value but 0"):
        evaluate_folder(tmp_path / "p", tmp_path / "l")


def test_names(dataset: Path) -> None:
    folders = [dataset / "good", dataset / "bad"]
    assert evaluate_folder(folders, dataset / "labels", names=["A", "B"]).methods == ("A", "B")
    with pytest.raises(ConfigError, match="1 names for 2 folders"):
        evaluate_folder(folders, dataset / "labels", names=["A"])
    with pytest.raises(ConfigError, match="not distinct"):
        evaluate_folder(folders, dataset / "labels", names=["A", "A"])
    (dataset / "run").mkdir()
    (dataset / "good").rename(dataset / "run" / "bad")
    assert evaluate_folder([dataset / "run" / "bad", dataset / "bad"], dataset / "labels").methods[0] == "run/bad"


def test_tolerance_follows_the_voxel(dataset: Path) -> None:
    assert evaluate_folder(dataset / "good", dataset / "labels").tolerance_mm == 2  # voxels of 2 x 2 x 3 mm
    assert not evaluate_folder(dataset / "good", dataset / "labels").warning_lines()
    stricter = evaluate_folder(dataset / "good", dataset / "labels", tolerance_mm=1)
    assert stricter.tolerance_mm == 1
    assert any("one voxel off" in line for line in stricter.warning_lines())
    nsd = stricter.summary("good", "lesion", "nsd").mean
    assert nsd < evaluate_folder(dataset / "good", dataset / "labels").summary("good", "lesion", "nsd").mean


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_thick_slices_do_not_forgive_errors_in_plane(tmp_path: Path, axis: int) -> None:
    """Masks that hardly overlap have a low NSD, also where the slices are 23 mm apart, along whatever axis."""
    spacing = [1.5, 1.5, 1.5]
    spacing[axis] = 23.0
    shape = [40, 40, 40]
    shape[axis] = 4
    box = [slice(4, 16)] * 3
    box[axis] = slice(1, 3)
    label, prediction = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
    label[tuple(box)] = 1
    box[(axis + 1) % 3] = slice(15, 27)
    prediction[tuple(box)] = 1
    save(tmp_path / "l" / "a.nii.gz", label, np.diag([*spacing, 1.0]))
    save(tmp_path / "p" / "a.nii.gz", prediction, np.diag([*spacing, 1.0]))
    found = evaluate_folder(tmp_path / "p", tmp_path / "l")
    assert found.tolerance_mm == 2
    assert found.mean("dice") < 0.1
    assert found.mean("nsd") < 0.25


def test_coarse_voxels_get_the_in_plane_side_as_tolerance() -> None:
    assert tolerance_for((5.47, 3.27, 5.47)) == 5.5
    assert tolerance_for((4.0, 4.0, 23.0)) == 4
    assert tolerance_for((0.9, 0.9, 3.0)) == 2


def test_names_of_the_prediction_are_used_where_nothing_else_names_a_value(tmp_path: Path) -> None:
    label = cube(1)
    label[12:, 10:, 9:] = 2
    label[0, 0, 0] = 7
    for folder in ("l", "p"):
        save(tmp_path / folder / "a.nii.gz", label)
    plan = {"labels": {"background": 0, "liver": 1, "lesion": 2, "ignore": 3}, "regions": None, "ignore_label": 3}
    (tmp_path / "p" / "a.json").write_text(json.dumps({"plan": plan}), encoding="utf-8")
    found = evaluate_folder(tmp_path / "p", tmp_path / "l")
    assert found.structures == {"liver": (1,), "lesion": (2,), "label 7": (7,)}
    plan["regions"] = {"whole": [1, 2], "lesion": [2]}  # type: ignore[assignment]
    (tmp_path / "p" / "a.json").write_text(json.dumps({"plan": plan}), encoding="utf-8")
    found = evaluate_folder(tmp_path / "p", tmp_path / "l")
    assert found.structures == {"whole": (1, 2), "lesion": (2,), "label 7": (7,)}
    (tmp_path / "dataset.json").write_text('{"labels": {"background": 0, "organ": 1}}', encoding="utf-8")
    assert list(evaluate_folder(tmp_path / "p", tmp_path / "l").structures) == ["organ", "lesion", "label 7"]


@pytest.mark.parametrize("labels", [3, [], {"a": "x"}, {"a": -1, "b": True}, {"background": 0}])
def test_nonsense_in_the_json_beside_a_prediction_is_no_name(tmp_path: Path, labels: object) -> None:
    for folder in ("l", "p"):
        save(tmp_path / folder / "a.nii.gz", cube(1))
    (tmp_path / "p" / "a.json").write_text(json.dumps({"plan": {"labels": labels}}), encoding="utf-8")
    assert list(evaluate_folder(tmp_path / "p", tmp_path / "l").structures) == ["label 1"]


@pytest.mark.parametrize("tolerance", [0.0, -1.0, math.nan, math.inf])
def test_wrong_tolerance(dataset: Path, tolerance: float) -> None:
    with pytest.raises(ConfigError, match="positive"):
        evaluate_folder(dataset / "good", dataset / "labels", tolerance_mm=tolerance)


def test_a_subset_by_mistake_is_pointed_out(dataset: Path) -> None:
    for number in range(5):
        (dataset / "good" / f"case_{number}.nii.gz").unlink()
    lines = evaluate_folder(dataset / "good", dataset / "labels").warning_lines()
    assert any("on purpose" in line for line in lines)


@pytest.mark.parametrize("text", ["WT", "WT=", "=1", "WT=a", "WT=0", "WT=-1", "WT=1;2", "brats,brats2023"])
def test_wrong_regions(text: str) -> None:
    with pytest.raises(ConfigError, match="WT=1,2,4"):
        parse_regions([text, "ET=4"] if "=" in text else [text])


def test_regions_twice() -> None:
    with pytest.raises(ConfigError, match="twice"):
        parse_regions(["A=1", "A=2"])


@pytest.mark.shared
def test_a_mask_on_the_pet_grid_is_refused(shared: Path, tmp_path: Path) -> None:
    """The commonest mistake in PET/CT: the prediction on the one scan's grid, the label on the other's."""
    patient = shared / "data" / "sts_petct" / "STS_002"
    for folder, name in (("l", "CT_mask.nii.gz"), ("p", "PET_mask.nii.gz")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "STS_002.nii.gz").symlink_to(patient / name)
    with pytest.raises(GeometryError, match=r"STS_002.*different grids: shape .*resample"):
        evaluate_folder(tmp_path / "p", tmp_path / "l")


def test_mean_of_structures(tmp_path: Path) -> None:
    label = cube(1)
    label[12:, 10:, 9:] = 2
    prediction = np.where(label == 2, 0, label).astype(np.uint8)
    save(tmp_path / "l" / "a.nii.gz", label)
    save(tmp_path / "p" / "a.nii.gz", prediction)
    found = evaluate_folder(tmp_path / "p", tmp_path / "l", regions={"one": (1,), "two": (2,), "never": (7,)})
    assert found.mean("dice") == 0.5  # of the two that are there
    assert found.to_json()["mean_of_structures"]["p"]["dice"] == 0.5


def test_labels_may_be_a_data_set(tmp_path: Path) -> None:
    label = cube(2)
    label[4:6, 4:6, 4:6] = 4
    for number in range(2):
        name = f"BraTS2021_0000{number}"
        save(tmp_path / "brats" / name / f"{name}_seg.nii.gz", label)
        save(tmp_path / "p" / f"{name}.nii.gz", label)
        for modality in ("t1", "t1ce", "t2", "flair"):
            scan = np.random.default_rng(number).random(label.shape, np.float32)
            save(tmp_path / "brats" / name / f"{name}_{modality}.nii.gz", scan)
    found = evaluate_folder(tmp_path / "p", tmp_path / "brats")
    assert list(found.structures) == ["WT", "TC", "ET"]
    assert found.mean() == 1
    assert set(found.image_files["BraTS2021_00000"]) == {"t1", "t1ce", "t2", "flair"}


def test_unseen_cases_of_a_data_set(dataset: Path) -> None:
    for part, cases in (("Tr", (0, 1)), ("Ts", (2, 3, 4))):
        for number in cases:
            for kind, name in (("labels", f"case_{number}"), *(("images", f"case_{number}_000{c}") for c in (0, 1))):
                (dataset / f"{kind}{part}").mkdir(exist_ok=True)
                (dataset / kind / f"{name}.nii.gz").rename(dataset / f"{kind}{part}" / f"{name}.nii.gz")
    text = '{"channel_names": {"0": "CT", "1": "PET"}, "labels": {"background": 0, "lesion": 1}, "numTraining": 2, '
    (dataset / "dataset.json").write_text(text + '"file_ending": ".nii.gz"}', encoding="utf-8")
    assert evaluate_folder(dataset / "good", dataset).cases == ("case_2", "case_3", "case_4")


def test_ignored_voxels_are_not_scored(dataset: Path) -> None:
    text = '{"labels": {"background": 0, "lesion": 1, "ignore": 2}}'
    (dataset / "dataset.json").write_text(text, encoding="utf-8")
    label = cube(1, 3, 9)
    label[:, :, 9:] = 2
    save(dataset / "labels" / "case_0.nii.gz", label)
    prediction = cube(1, 3, 9)
    prediction[3:9, 3:9, 9:] = 1
    save(dataset / "good" / "case_0.nii.gz", prediction)
    found = evaluate_folder(dataset / "good", dataset / "labels")
    assert list(found.structures) == ["lesion"]
    assert found.values("good", "lesion", "dice")[0] == 1


def test_test_cases_without_labels_are_said(dataset: Path) -> None:
    rows = "case,ct,label,split\ncase_0,a.nii,labels/case_0.nii.gz,train\ncase_1,b.nii,,test\n"
    (dataset / "list.csv").write_text(rows)
    with pytest.raises(DatasetError, match="have no labels, only 1 train have; choose another --split"):
        evaluate_folder(dataset / "good", dataset / "list.csv", selection=Selection(split="test"))
    assert evaluate_folder(dataset / "good", dataset / "list.csv").cases == ("case_0",)
    with pytest.raises(ConfigError, match="a folder of label maps, which has no splits"):
        evaluate_folder(dataset / "good", dataset / "labels", selection=Selection(split="test"))
    named = evaluate_folder(dataset / "good", dataset / "labels", selection=Selection(names=("case_2",)))
    assert named.cases == ("case_2",)
    assert named.extra == {"good": ()}
