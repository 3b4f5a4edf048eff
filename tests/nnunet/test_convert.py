"""A fold of nnU-Net becomes a MODEL, without nnU-Net; what must not be converted is refused by its name."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from support.nnunet_data import case_volumes
from support.nnunet_results import DATASET, PATCH, make_plans, save_checkpoint, write_results
from veloxseg.cli import main
from veloxseg.errors import ModelError
from veloxseg.image import write
from veloxseg.model_folder import ModelFolder, load_network
from veloxseg.nnunet.convert import convert_results
from veloxseg.nnunet.plans import read_configuration
from veloxseg.predict.predictor import segment
from veloxseg.prepare.plan import Plan

REGIONS = {**DATASET, "labels": {"background": 0, "whole": [1, 2], "core": 2}, "regions_class_order": [1, 2]}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_results(tmp_path_factory.mktemp("results"), folds=2)


def test_the_plan_says_what_nnunet_does(results: Path, tmp_path: Path) -> None:
    (folder,) = convert_results(results, tmp_path / "model", ("1",))
    plan = ModelFolder.open(folder.path).plan
    assert (plan.format, plan.pipeline, plan.names, plan.patch) == (2, "nnunet", ("ct", "pet"), PATCH)
    assert [m.normalisation.scheme for m in plan.modalities] == ["clip_zscore", "zscore_nonzero"]
    assert plan.nnunet is not None
    assert plan.nnunet.axes == (1, 0, 2)
    assert plan.nnunet.mirror_axes == (0, 1)
    assert (plan.nnunet.image.order, plan.nnunet.scores.order) == (3, 1)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_the_weights_are_the_students(results: Path, tmp_path: Path) -> None:
    import torch

    (folder,) = convert_results(results, tmp_path / "model", ("0",))
    stored = torch.load(results / "fold_0" / "checkpoint_final.pth", weights_only=False)["network_weights"]
    kept = load_network(ModelFolder.open(folder.path)).state_dict()
    assert any(name.startswith("teachers.") for name in stored)
    assert not any(name.startswith("teachers.") for name in kept)
    assert all(torch.equal(kept[name], stored[name]) for name in kept)


def test_folds_are_an_ensemble(results: Path, tmp_path: Path) -> None:
    """The folder of both folds gives what both folders given one by one give."""
    scans, _ = case_volumes(1)
    for name, volume in scans.items():
        write(volume, tmp_path / f"{name}.nii.gz")
    files = {name: tmp_path / f"{name}.nii.gz" for name in scans}
    convert_results(results, tmp_path / "both")
    together = segment(files, tmp_path / "both", threads=1)
    apart = segment(files, [tmp_path / "both" / f"fold_{n}" for n in (0, 1)], threads=1)
    single = segment(files, tmp_path / "both" / "fold_0", threads=1)
    assert np.array_equal(together.array, apart.array)
    assert not np.array_equal(together.array, single.array)


def test_regions_keep_the_order_of_their_classes(tmp_path: Path) -> None:
    (folder,) = convert_results(write_results(tmp_path / "results", dataset=REGIONS), tmp_path / "model")
    assert folder.plan.regions == {"whole": (1, 2), "core": (2,)}
    assert (folder.plan.labels["whole"], folder.plan.labels["core"]) == (1, 2)


def test_a_configuration_inherits(results: Path, tmp_path: Path) -> None:
    other = write_results(tmp_path / "results", configuration="3d_larger_batch")
    (folder,) = convert_results(other, tmp_path / "model")
    assert folder.plan.patch == PATCH


def test_mirroring_is_nnunets(results: Path, tmp_path: Path) -> None:
    """Along two axes, four images; and none where the training had none."""
    scans, _ = case_volumes(0)
    for name, volume in scans.items():
        write(volume, tmp_path / f"{name}.nii.gz")
    files = {name: tmp_path / f"{name}.nii.gz" for name in scans}
    convert_results(results, tmp_path / "model", ("0",))
    mirrored = segment(files, tmp_path / "model", threads=1, mirror=True)
    assert not np.array_equal(mirrored.array, segment(files, tmp_path / "model", threads=1).array)
    description = json.loads((tmp_path / "model" / "model.json").read_text())
    description["plan"]["nnunet"]["mirror_axes"] = []
    (tmp_path / "model" / "model.json").write_text(json.dumps(description))
    with pytest.raises(Exception, match="without mirroring"):
        segment(files, tmp_path / "model", threads=1, mirror=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"configuration": "2d"}, "configuration is 2d"),
        ({"configuration": "3d_cascade_fullres"}, "cascade after 3d_lowres"),
        ({"configuration": "3d_unknown"}, "3d_unknown"),
        ({"normalization_schemes": ["CTNormalization", "HistogramNormalization"]}, "HistogramNormalization"),
        ({"normalization_schemes": ["CTNormalization"]}, "2 channels"),
        ({"resampling_fn_data": "resample_torch_fornnunet"}, "resample_torch_fornnunet"),
        ({"preprocessor_name": "MyPreprocessor"}, "MyPreprocessor"),
        ({"image_reader_writer": "Tiff3DIO"}, "Tiff3DIO"),
        ({"spacing": [1.0, 0.0, 1.0]}, "spacing"),
        ({"transpose_forward": [0, 0, 2]}, "axes"),
        ({"foreground_intensity_properties_per_channel": {}}, "intensities of channel 0"),
    ],
)
def test_what_cannot_be_converted_is_named(results: Path, tmp_path: Path, change: dict, message: str) -> None:
    configuration = change.pop("configuration", "3d_fullres")
    tried = tmp_path / "results"
    tried.mkdir()
    architecture = json.loads((results / "plans.json").read_text())["configurations"]["3d_fullres"]["architecture"]
    (tried / "plans.json").write_text(json.dumps(make_plans(architecture=architecture, **change)))
    (tried / "dataset.json").write_text(json.dumps(DATASET))
    save_checkpoint(tried / "fold_0" / "checkpoint_final.pth", {}, configuration)
    with pytest.raises(ModelError, match=message):
        convert_results(tried, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_weights_of_another_network_are_refused(results: Path, tmp_path: Path) -> None:
    import torch

    other = write_results(tmp_path / "results")
    save_checkpoint(other / "fold_0" / "checkpoint_final.pth", {"encoder.weight": torch.zeros(3)})
    with pytest.raises(ModelError, match="does not fit"):
        convert_results(other, tmp_path / "model")


def test_a_network_that_nobody_knows_is_not_imported(results: Path, tmp_path: Path) -> None:
    """Plans name a class as text; a name such as os.system must not be looked up."""
    other = write_results(tmp_path / "results")
    plans = json.loads((other / "plans.json").read_text())
    plans["configurations"]["3d_fullres"]["architecture"]["network_class_name"] = "os.system"
    (other / "plans.json").write_text(json.dumps(plans))
    with pytest.raises(ModelError, match=r"network is os\.system"):
        convert_results(other, tmp_path / "model")


class Hostile:
    """A pickle that makes a folder when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_hostile_checkpoint_is_refused_and_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write_results(tmp_path / "results")
    save_checkpoint(other / "fold_0" / "checkpoint_final.pth", {}, more=Hostile(tmp_path / "was_run"))
    assert main(["convert", str(other), "-o", str(tmp_path / "model")]) == 2
    message = capsys.readouterr().err
    assert "cannot be read safely" in message
    assert message.count("\n") == 1
    assert not (tmp_path / "was_run").exists()
    assert not (tmp_path / "model").exists()


def test_folders_that_are_no_results(results: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no plans\.json"):
        convert_results(tmp_path, tmp_path / "model")
    with pytest.raises(ModelError, match="no fold_7"):
        convert_results(results, tmp_path / "model", ("7",))
    with pytest.raises(ModelError, match="no fold with a checkpoint_best"):
        convert_results(results, tmp_path / "model", checkpoint="checkpoint_best.pth")


def test_plans_from_before_2_5_tell_their_network_in_other_words(tmp_path: Path) -> None:
    words = {
        "UNet_class_name": "PlainConvUNet",
        "UNet_base_num_features": 32,
        "unet_max_num_features": 128,
        "n_conv_per_stage_encoder": [2, 2, 2, 2],
        "n_conv_per_stage_decoder": [2, 2, 2],
        "pool_op_kernel_sizes": [[1, 1, 1], [2, 2, 2], [2, 2, 2], [1, 2, 2]],
        "conv_kernel_sizes": [[3, 3, 3]] * 4,
    }
    path = tmp_path / "plans.json"
    path.write_text(json.dumps(make_plans(**words)))
    architecture = read_configuration(path, "3d_fullres")[1].architecture
    assert architecture is not None
    assert architecture["network_class_name"] == "PlainConvUNet"
    assert architecture["arch_kwargs"]["features_per_stage"] == [32, 64, 128, 128]
    path.write_text(json.dumps(make_plans(**{**words, "UNet_base_num_features": -1})))
    with pytest.raises(ModelError, match="UNet_base_num_features"):
        read_configuration(path, "3d_fullres")
