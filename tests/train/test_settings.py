"""Settings by name: all of recipe and network, by `--set`, from a file, and from a run's own record."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from support.tiny_training import plan_of, write_prepared
from veloxseg.cli import main
from veloxseg.errors import ConfigError
from veloxseg.model.config import NetworkConfig
from veloxseg.model_folder import ModelFolder, load_network
from veloxseg.train.recipe import Recipe, network_settings, trained_plan
from veloxseg.train.settings import NETWORK, RECIPE, by_name, make_recipe, parse_overrides, read_config, setting_text
from veloxseg.train.settings_page import field_texts, page

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
QUICK = ["--model", "tiny", "--epochs", "1", "--set", "batch=2", "steps_per_epoch=1", "warmup_epochs=0"]


def test_every_field_of_recipe_and_network_is_a_setting_of_one_of_them() -> None:
    assert RECIPE.keys() == {field.name for field in dataclasses.fields(Recipe)} - {"network"}
    assert NETWORK.keys() == {field.name for field in dataclasses.fields(NetworkConfig)}
    assert not RECIPE.keys() & NETWORK.keys()


@pytest.mark.parametrize("name", [*RECIPE, *NETWORK])
def test_every_setting_is_read_as_the_page_writes_it(name: str) -> None:
    default = getattr(NetworkConfig() if name in NETWORK else Recipe(), name)
    assert parse_overrides([f"{name}={setting_text(default)}"]) == {name: default}


def test_the_page_of_settings_is_made_from_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m veloxseg.train.settings_page > docs/settings.md"
    assert field_texts(NetworkConfig).keys() == NETWORK.keys()  # every field has its text
    assert field_texts(Recipe).keys() - {"network"} == RECIPE.keys()


def test_network_settings_reach_the_network() -> None:
    texts = ["group_sizes=1,2,2,4", "windows=2x2x4,2x2x4,1x1x2,1x1x2", "attention=window", "head=transposed"]
    recipe = make_recipe(parse_overrides([*texts, "conv_dropout=0.3", "dropout=0.2", "patch=64x64x128"]))
    plan = trained_plan(plan_of(), recipe)
    assert plan.patch == (64, 64, 128)
    _, network = network_settings(recipe, plan)
    assert network["group_sizes"] == (1, 2, 2, 4)
    assert network["windows"] == ((2, 2, 4), (2, 2, 4), (1, 1, 2), (1, 1, 2))
    assert (network["attention"], network["head"]) == ("window", "transposed")
    assert (network["conv_dropout"], network["attention_dropout"]) == (0.3, 0.2)
    assert network["patch"] == (64, 64, 128)
    assert make_recipe(by_name(recipe)) == recipe
    assert Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grup_sizes=1,1,1,1", r"unknown setting 'grup_sizes' \(did you mean group_sizes\?\); choose from .*windows"),
        ("group_sizes=4,8", "group_sizes is .*expected a list of 4, each a whole number from 1 to 1024"),
        ("group_sizes=3,8,8,16", r"group size 3 does not divide the width 16 of stage 1; use one of \[1, 2, 4"),
        ("windows=5x5x5,1x1x2,1x1x2,1x1x2", r"window \(5, 5, 5\) .*; use \(1, 1, 2\)"),
        ("patch=33x32x32", "not divisible by 32; use"),
        ("attention=pair", r"one of paired, window, downsampled, none \(did you mean paired\?\)"),
        ("kernel_sizes=2", "must be odd"),
        ("in_channels=3", r"make 3 channels, the data has 2 \(ct, pet\)"),
        ("classes=4", "the prepared labels make 2 .*--merge"),
        ("network=1", "unknown setting"),
        ("model=slim-unet", r"did you mean slim-unetr\?"),
    ],
)
def test_an_unknown_or_impossible_setting_says_what_is_valid(text: str, message: str) -> None:
    def resolve() -> None:
        recipe = make_recipe(parse_overrides([text]))
        network_settings(recipe, trained_plan(plan_of(), recipe))

    with pytest.raises(ConfigError, match=message):
        resolve()


def test_a_peer_has_no_settings_of_veloxseg_but_a_patch() -> None:
    recipe = make_recipe({"model": "unet", "patch": (64, 64, 64)})
    assert network_settings(recipe, trained_plan(plan_of(), recipe))[1]["patch"] == (64, 64, 64)
    with pytest.raises(ConfigError, match="unet has no setting heads"):
        network_settings(make_recipe({"model": "unet", "heads": (1, 1, 1, 1)}), plan_of())


@pytest.fixture(scope="module")
def run(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from support.tiny_training import TINY
    from veloxseg.model.config import PRESETS

    PRESETS["tiny"] = TINY
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("runs") / "run"
    network = ["group_sizes=1,2,2,4", "kernel_sizes=1,3", "patch=32x32x32", "--set", "transformer_expansions=2,1,1,1"]
    assert main(["train", *QUICK, *network, str(prepared), "-o", str(folder)]) == 0  # PREPARED after all --set
    return folder


def test_settings_of_the_network_travel_with_run_and_model(run: Path) -> None:
    stored = json.loads((run / "settings.json").read_text())["settings"]
    assert stored["network"] == {
        "group_sizes": [1, 2, 2, 4],
        "kernel_sizes": [1, 3],
        "patch": [32, 32, 32],
        "transformer_expansions": [2, 1, 1, 1],
    }
    folder = ModelFolder.open(run)
    assert folder.plan.patch == (32, 32, 32)
    assert folder.network["group_sizes"] == [1, 2, 2, 4]
    assert load_network(folder)(torch.zeros(1, 2, 32, 32, 32)).shape == (1, 2, 32, 32, 32)


def test_a_run_is_repeated_by_its_own_record_to_the_bit(run: Path, prepared: Path, tmp_path: Path) -> None:
    assert main(["train", str(prepared), "-o", str(tmp_path), "--config", str(run / "settings.json")]) == 0
    first, second = (load_file(folder / "model/model.safetensors") for folder in (run, tmp_path))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert json.loads((run / "settings.json").read_text()) == json.loads((tmp_path / "settings.json").read_text())


def test_a_record_of_other_data_is_warned_of(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write_prepared(tmp_path / "other", plan_of(), {"a": "train", "d": "validation"})
    assert main(["train", str(other), "-o", str(tmp_path / "run"), "--config", str(run / "settings.json")]) == 0
    assert "was recorded on other data" in capsys.readouterr().err


def test_going_on_keeps_the_settings_of_the_network(
    run: Path, prepared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", str(prepared), "-o", str(run), "--continue", "--set"]
    assert main([*command, "group_sizes=1,2,2,4", "batch=2"]) == 0
    assert main([*command, "group_sizes=4,4,4,4"]) == 2
    assert "group_sizes ((1, 2, 2, 4) stored, (4, 4, 4, 4) asked)" in capsys.readouterr().err
    assert main([*command, "heads=2,2,2,2"]) == 2
    assert "heads ('as the preset has it' stored" in capsys.readouterr().err


def test_a_config_file_gives_settings_and_the_command_line_wins(prepared: Path, tmp_path: Path) -> None:
    config = tmp_path / "my.toml"
    config.write_text(
        'model = "tiny"\nepochs = 7\nbatch = 2\nsteps_per_epoch = 1\n'
        "windows = [[1, 1, 2], [1, 1, 2], [1, 1, 2], [1, 1, 2]]\ngroup_sizes = [1, 1, 1, 1]\n"
    )
    options = ["--config", str(config), "--epochs", "1", "--set", "group_sizes=2,2,2,2"]
    assert main(["train", str(prepared), "-o", str(tmp_path / "run"), *options]) == 0
    stored = json.loads((tmp_path / "run/settings.json").read_text())["settings"]
    assert (stored["epochs"], stored["network"]["group_sizes"]) == (1, [2, 2, 2, 2])
    assert stored["network"]["windows"] == [[1, 1, 2]] * 4


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "learning_rat = 1", r"a.toml: unknown setting 'learning_rat' \(did you mean learning_rate\?\)"),
        ("a.toml", "batch = true", "batch is True, expected a whole number"),
        ("a.toml", "batch 2", "a.toml is not valid TOML"),
        ("a.toml", None, "a.toml does not exist"),
        ("a.json", "{}", "no settings.json of a training"),
        ("a.json", '{"settings": {"network": {"hedas": 1}}}', "unknown setting of the network 'hedas'"),
    ],
)
def test_a_bad_config_file_is_refused(name: str, text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_config(tmp_path / name)
