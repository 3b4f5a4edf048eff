"""Recipe, patch and plans of a training inside nnU-Net; none of it needs nnU-Net."""

import pytest

from support.nnunet_results import DATASET, make_plans
from veloxseg.cli import main
from veloxseg.errors import ConfigError
from veloxseg.nnunet.network import CLASS_NAME
from veloxseg.nnunet.settings import (
    PATCH,
    PRESET,
    RECIPE,
    SHORT_IN_NNUNET,
    build_recipe,
    choose_settings,
    fit_plans,
    wanted_patch,
)
from veloxseg.train.recipe import Recipe


def fitted(patch=None, batch=None, recipe: Recipe | None = None, configuration: str = "3d_fullres", **changes) -> dict:
    plans = make_plans(**changes)
    fit_plans(plans, configuration, DATASET, recipe or Recipe(), patch=patch, outputs=3, batch=batch)
    return plans["configurations"][configuration]


def test_the_paper_patch_is_taken_for_its_data_sets() -> None:
    """HECKTOR's is 128 × 128 × 64 along (x, y, z); the plans have another order of axes."""
    assert fitted(dataset_name="Dataset221_AutoPETII_2023")["patch_size"] == [96, 96, 96]
    assert fitted(dataset_name="Dataset555_HECKTOR22", transpose_forward=[0, 1, 2])["patch_size"] == [64, 128, 128]
    assert fitted(dataset_name="Dataset555_HECKTOR22", transpose_forward=[1, 0, 2])["patch_size"] == [128, 64, 128]


def test_other_data_sets_get_a_patch_of_ours() -> None:
    patch = fitted(median_image_size_in_voxels=[36.0, 50.0, 35.0], spacing=[1.0, 1.0, 1.0])["patch_size"]
    assert patch == [32, 64, 32]
    assert fitted(patch=(32, 32, 96))["patch_size"] == [32, 32, 96]


def test_the_network_stands_in_the_plans() -> None:
    entry = fitted(patch=(32, 32, 64))
    architecture = entry["architecture"]
    assert architecture["network_class_name"] == CLASS_NAME
    assert architecture["arch_kwargs"]["config"]["classes"] == 3
    assert architecture["arch_kwargs"]["config"]["in_channels"] == (1, 1)
    assert entry["batch_size"] == 2  # nnU-Net's own
    assert fitted(patch=(32, 32, 64), batch=3)["batch_size"] == 3


def test_one_to_four_modalities() -> None:
    for count in (1, 2, 3, 4):
        plans = make_plans()
        names = {"channel_names": {str(n): f"mr{n}" for n in range(count)}}
        fit_plans(plans, "3d_fullres", names, Recipe(), patch=(32, 32, 64), outputs=2, batch=None)
        config = plans["configurations"]["3d_fullres"]["architecture"]["arch_kwargs"]["config"]
        assert config["in_channels"] == (1,) * count


def test_the_environment_stands_over_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RECIPE, "epochs=7 teachers=false kernel_sizes=1,3")
    monkeypatch.setenv(PATCH, "64x32x96")
    monkeypatch.setenv(PRESET, "s")
    settings = choose_settings(SHORT_IN_NNUNET)
    recipe = build_recipe(settings, "b")
    assert (recipe.epochs, recipe.teachers, recipe.learning_rate, recipe.model) == (7, False, 4e-3, "s")
    assert wanted_patch((32, 32, 32)) == (64, 32, 96)
    assert fitted(patch=(32, 32, 64), recipe=recipe)["architecture"]["arch_kwargs"]["config"]["kernel_sizes"] == (1, 3)


def test_what_nnunet_decides_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RECIPE, "augmentation=strong")
    with pytest.raises(ConfigError, match="augmentation is decided by nnU-Net"):
        choose_settings({})
    monkeypatch.setenv(RECIPE, "epochs=many")
    with pytest.raises(ConfigError, match="epochs"):
        choose_settings({})
    monkeypatch.setenv(PATCH, "64x32")
    with pytest.raises(ConfigError, match=PATCH):
        wanted_patch(None)


@pytest.mark.parametrize("configuration", ["2d", "3d_cascade_fullres"])
def test_other_configurations_are_refused(configuration: str) -> None:
    with pytest.raises(ConfigError, match=f"{configuration} is not; use 3d_fullres"):
        fitted(configuration=configuration)


def test_the_folder_of_trainers(capsys: pytest.CaptureFixture[str]) -> None:
    from pathlib import Path

    assert main(["nnunet", "trainers"]) == 0
    folder = Path(capsys.readouterr().out.strip())
    assert [path.name for path in folder.glob("*.py")] == ["veloxseg_trainers.py"]


def test_what_is_missing_is_said_before_nnunet_is_imported(tmp_path, monkeypatch, capsys) -> None:
    for name in ("nnUNet_preprocessed", "nnUNet_results"):
        monkeypatch.delenv(name, raising=False)
    assert main(["nnunet", "train", "901", "3d_fullres", "0"]) == 2
    assert "--preprocessed" in capsys.readouterr().err
    monkeypatch.setenv("nnUNet_preprocessed", str(tmp_path))
    monkeypatch.setenv("nnUNet_results", str(tmp_path))
    assert main(["nnunet", "train", "901", "3d_fullres", "0"]) == 2
    assert "nnUNetv2_plan_and_preprocess" in capsys.readouterr().err
    assert main(["nnunet", "predict", str(tmp_path), "-i", str(tmp_path), "-o", str(tmp_path / "out")]) == 2
    assert "no plans.json" in capsys.readouterr().err
