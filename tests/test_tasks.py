"""The paper's tasks by name: what is prepared and trained is what was published."""

import csv
import json
import re
from pathlib import Path

import nibabel
import numpy as np
import pytest

from support.archives import ARCHIVES, brats, hecktor
from veloxseg.cli import main
from veloxseg.errors import ConfigError
from veloxseg.model.config import NetworkConfig
from veloxseg.model.count import macs_as_published, parameters, parameters_as_published
from veloxseg.model.network import VeloxSeg
from veloxseg.model_folder import ModelFolder
from veloxseg.prepare.plan import Plan
from veloxseg.prepare.store import Prepared
from veloxseg.tasks import TASKS, find_task
from veloxseg.train.recipe import Recipe, network_settings
from veloxseg.train.settings import make_recipe

# parameters (all; printed in the paper), MACs as published
COSTS = {"autopet2": (1.6696, 1.66, 1.79), "hecktor2022": (1.6703, 1.66, 2.13), "brats2021": (1.4703, 1.46, 2.64)}
WINDOWS = {
    "autopet2": ((3, 3, 3), (6, 6, 6), (3, 3, 3), (3, 3, 3)),
    "hecktor2022": ((4, 4, 2), (8, 8, 4), (4, 4, 2), (4, 4, 2)),
    "brats2021": ((3, 3, 3), (6, 6, 6), (3, 3, 3), (3, 3, 3)),
}


def prepare(task: str, folder: Path, *options: str) -> Prepared:
    data = ARCHIVES[task](folder / "data")
    command = ["prepare", str(data), "-o", str(folder / "prepared"), "--as", task, "--workers", "0", *options]
    assert main(command) == 0
    return Prepared.open(folder / "prepared")


def cost(plan: Plan, settings: dict[str, object]) -> tuple[float, float, float]:
    """Parameters, those that the paper's counter sees, and MACs by it: millions, millions, thousand millions."""
    _, network = network_settings(make_recipe(settings), plan)
    built = VeloxSeg(NetworkConfig.from_json(network))
    published = macs_as_published(built, (1, len(plan.names), *plan.patch))
    return parameters(built) / 1e6, parameters_as_published(built) / 1e6, published / 1e9


@pytest.mark.parametrize("task", TASKS)
def test_prepare_as_gives_the_published_network(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepared = prepare(task, tmp_path)
    plan = prepared.plan
    assert (plan.spacing, plan.patch, plan.names) == (TASKS[task].spacing, TASKS[task].patch, TASKS[task].modalities)
    assert plan.windows == WINDOWS[task]
    schemes = {modality.kind: modality.normalisation.scheme for modality in plan.modalities}
    assert schemes == ({"mr": "zscore_body"} if task == "brats2021" else {"ct": "clip_zscore", "pet": "zscore_body"})
    assert len(plan.outputs) == TASKS[task].classes
    assert [case.split for case in prepared.cases].count("test") == 1
    every, printed, macs = cost(plan, TASKS[task].settings)
    assert f"{every:.4f}" == f"{COSTS[task][0]:.4f}"
    assert int(100 * printed) / 100 == COSTS[task][1]  # the paper cuts digits off
    assert f"{macs:.2f}" == f"{COSTS[task][2]:.2f}"
    said = capsys.readouterr().out
    assert all(line in said for line in TASKS[task].left_open)


def test_brats_as_three_sigmoids_is_one_option_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = prepare("brats2021", tmp_path, "--regions", "given").plan
    assert plan.outputs == ("WT", "TC", "ET")
    assert f"{cost(plan, TASKS['brats2021'].settings)[2]:.2f}" == "2.26"
    assert "3 outputs, the paper's has 4" in capsys.readouterr().err


def test_merged_labels_are_one_in_prepared_and_known_apart_in_files(tmp_path: Path) -> None:
    prepared = prepare("hecktor2022", tmp_path)
    plan = prepared.plan
    assert plan.labels == {"background": 0, "tumour": 1}
    assert plan.structures == {"tumour": (1, 2)}
    assert set(np.unique(prepared.label("A-000"))) == {0, 1}
    assert Plan.from_json(plan.to_json()) == plan
    assert prepared.fingerprint["labels"]["tumour"]["cases"] == 2  # the plan does not know the test case
    command = ["prepare", str(tmp_path / "data"), "-o", str(tmp_path / "apart"), "--patch", "32", "32", "32"]
    assert main([*command, "--spacing", "2", "2", "4", "--workers", "0"]) == 0
    apart = Prepared.open(tmp_path / "apart")
    assert "merged" not in apart.plan.to_json()  # what was prepared before there was --merge stays the same
    assert apart.plan.structures == {"GTVp": (1,), "GTVn": (2,)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--merge", "tumour=GTVp,GTV"], r"no label 'GTV' .*did you mean GTV[pn]\?.*GTVp, GTVn"),
        (["--merge", "tumour=background,GTVn"], "no label 'background'"),
        (["--merge", "GTVn=GTVp"], "another label has this name"),
        (["--merge", "tumour"], "is not NAME=A,B"),
        (["--regions", "all=1,3"], r"no label '3'; the data set has GTVp 1, GTVn 2"),
        (["--regions", "both=GTVp,GTVn", "--merge", "tumour=GTVp,GTVn"], "add --regions none"),
        (["--as", "brats2021"], "needs t1, t1ce, t2, flair, the data set has ct, pet"),
        (["--as", "autopet"], "autopet2"),
    ],
)
def test_labels_that_are_not_there_are_refused(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = hecktor(tmp_path / "data", 1)
    assert main(["prepare", str(data), "-o", str(tmp_path / "out"), "--workers", "0", *options]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert re.search(message, line)
    assert not list((tmp_path / "out").glob("data/*"))


def test_regions_by_name_or_value(tmp_path: Path) -> None:
    data = brats(tmp_path / "data")
    command = ["prepare", str(data), "-o", str(tmp_path / "out"), "--patch", "32", "32", "32", "--workers", "0"]
    assert main([*command, "--regions", "core=necrotic_core,enhancing", "all=1,2,4"]) == 0
    assert Prepared.open(tmp_path / "out").plan.regions == {"core": (1, 4), "all": (1, 2, 4)}


def test_train_as_takes_the_published_settings_and_says_where_data_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare("brats2021", tmp_path, "--patch", "32", "32", "32")
    command = ["train", str(tmp_path / "prepared"), "-o", str(tmp_path / "run"), "--as", "brats2021"]
    assert main([*command, "--epochs", "1", "--set", "batch=2", "steps_per_epoch=1"]) == 0
    folder = ModelFolder.open(tmp_path / "run")
    assert (folder.network["in_channels"], folder.network["classes"]) == ([4], 4)
    assert folder.plan.outputs == ("background", "necrotic_core", "oedema", "enhancing")
    captured = capsys.readouterr()
    assert "patch (32, 32, 32) instead of (96, 96, 96)" in captured.err
    assert "10 epochs and 6e-6" in captured.out


def test_the_recipe_of_every_task_is_the_default_but_for_the_preset() -> None:
    paper = Recipe()
    assert (paper.epochs, paper.batch, paper.learning_rate, paper.weight_decay) == (300, 4, 2.5e-4, 0.01)
    assert all(task.settings.keys() == {"model"} for task in TASKS.values())
    with pytest.raises(ConfigError, match=r"did you mean brats2021\?"):
        find_task("brats2020")


def test_what_was_merged_is_scored_as_one_on_the_archives_own_label_maps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared = prepare("hecktor2022", tmp_path)
    (name,) = prepared.split().test
    label = nibabel.load(tmp_path / "data" / "labelsTr" / f"{name}.nii.gz")
    assert set(np.unique(np.asarray(label.dataobj))) == {0, 1, 2}
    (tmp_path / "masks").mkdir()
    mask = (np.asarray(label.dataobj) > 0).astype(np.uint8)  # a perfect prediction of the merged label
    nibabel.save(nibabel.Nifti1Image(mask, label.affine), tmp_path / "masks" / f"{name}.nii.gz")
    command = ["evaluate", "-p", str(tmp_path / "masks"), "-l", str(tmp_path / "prepared"), "--split", "test"]
    assert main([*command, "-o", str(tmp_path / "report")]) == 0
    (row,) = csv.DictReader((tmp_path / "report" / "metrics.csv").read_text().splitlines())
    assert (row["structure"], float(row["dice"])) == ("tumour", 1.0)
    record = {"plan": prepared.plan.to_json()}  # what predict leaves beside a mask
    (tmp_path / "masks" / f"{name}.json").write_text(json.dumps(record))
    command = ["evaluate", "-p", str(tmp_path / "masks"), "-l", str(tmp_path / "data"), "--cases", name]
    assert main([*command, "-o", str(tmp_path / "raw")]) == 0
    assert "scored as the model was trained: tumour = 1,2" in capsys.readouterr().out
    (row,) = csv.DictReader((tmp_path / "raw" / "metrics.csv").read_text().splitlines())
    assert (row["structure"], float(row["dice"])) == ("tumour", 1.0)
