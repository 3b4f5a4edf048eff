"""The tables of the paper as data: every row is a network that can be built, with the cost that the paper prints."""

from pathlib import Path

import pytest
import torch

from veloxseg.errors import ConfigError
from veloxseg.model.config import PRESETS
from veloxseg.model.count import macs_as_published, parameters_as_published
from veloxseg.model_folder import build_network
from veloxseg.prepare.plan import ModalityPlan, Normalisation, Plan
from veloxseg.study.contents import CONTENTS
from veloxseg.study.table import choose_rows
from veloxseg.study.tables import NAMES, find_table
from veloxseg.train.recipe import network_settings, trained_plan
from veloxseg.train.settings import make_recipe, parse_overrides, train_command

ROWS = [(name, row.name) for name in NAMES for row in find_table(name, ("ct", "pet")).rows]
PATCHES = {"jl": (128, 128, 64)}  # its printed costs are HECKTOR's
APART = {("attention", "window"), ("attention", "downsampled")}  # the paper says too little to be exact


def plan(table: str) -> Plan:
    modalities = [ModalityPlan(name=n, kind=n, normalisation=Normalisation(scheme="none")) for n in ("ct", "pet")]
    return Plan(
        dataset="autopet",
        modalities=tuple(modalities),
        reference="ct",
        spacing=(2.0, 2.0, 3.0),
        patch=PATCHES.get(table, (96, 96, 96)),
        windows=(),
        labels={"background": 0, "lesion": 1},
    )


@pytest.mark.parametrize(("table", "row"), ROWS)
def test_a_row_costs_what_the_paper_prints(table: str, row: str) -> None:
    """Of VeloxSeg's own rows; a test of the peers holds theirs."""
    whole = find_table(table, ("ct", "pet"))
    entry = whole.row(row)
    recipe = make_recipe(whole.settings_of(entry))
    if recipe.model not in PRESETS:
        return
    data = trained_plan(plan(table), recipe)
    with torch.device("meta"):
        network = build_network(*network_settings(recipe, data))
    if entry.prune is not None or table == "pruning" or "M" not in entry.paper:
        return
    millions = parameters_as_published(network) / 1e6
    macs = macs_as_published(network, (1, len(data.names), *data.patch)) / 1e9
    tolerance = 0.03 if (table, row) in APART else 0.006
    assert millions == pytest.approx(entry.paper["M"], rel=tolerance, abs=0.011)
    assert macs == pytest.approx(entry.paper["G"], rel=tolerance, abs=0.011)


def test_the_command_of_a_row_gives_its_settings_back() -> None:
    for name, row in ROWS:
        table = find_table(name, ("ct", "pet"))
        settings = table.settings_of(table.row(row)) | {"seed": 3, "learning_rate": 2.5e-4}
        words = train_command(settings).partition("--set ")[2].split()
        assert parse_overrides(words) == settings


def test_a_table_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "rates.toml"
    file.write_text(
        'title = "Rates"\nfirst = "low"\n[settings]\nmodel = "s"\n[rows.high]\nlearning_rate = 4e-3\n'
        '[rows.low]\ntitle = "the paper\'s"\nlearning_rate = 2.5e-4\npaper = { Dice = 62.51 }\n'
        '[rows.cut]\nprune = { of = "high", what = "ffn", to = "60%" }\n'
    )
    table = find_table(str(file), ("ct",))
    assert (table.title, table.first, [row.name for row in table.rows]) == ("Rates", "low", ["high", "low", "cut"])
    assert table.settings_of(table.row("low")) == {"model": "s", "learning_rate": 2.5e-4}
    assert table.row("low").paper == {"Dice": 62.51}
    assert table.row("cut").prune.to == "60%"
    assert [row.name for row in choose_rows(table, ["cut"]).rows] == ["high", "cut"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "rows"),
        ("[rows.a]\nlearning_rat = 1", "learning_rat"),
        ('[rows."a/b"]\nseed = 1', "cannot name a folder"),
        ('first = "b"\n[rows.a]\nseed = 1', "has no row 'b'"),
        ('[rows.a]\nprune = { of = "b", what = "ffn", to = "1M" }', "has no row 'b'"),
        ('[rows.a]\nprune = { of = "a", what = "heads", to = "1M" }', "one of ffn, channels"),
        ("[rows.a]\npaper = { Dice = 'high' }", "must name numbers"),
    ],
)
def test_a_wrong_table_is_told_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        find_table(str(file), ("ct",))


def test_an_unknown_study_is_named_with_its_neighbour() -> None:
    with pytest.raises(ConfigError, match="did you mean modules"):
        find_table("module", ("ct",))
    with pytest.raises(ConfigError, match=r"has no row 'gramm' .did you mean gram"):
        choose_rows(find_table("modules", ("ct",)), ["gramm"])


def test_every_study_is_somewhere_in_the_paper() -> None:
    commands = " ".join(entry.command for entry in CONTENTS)
    assert all(f"study {name} " in commands for name in NAMES)


def test_peers_stand_beside_what_is_printed_of_such_data() -> None:
    """Both PET/CT data sets, or BraTS, where VeloxSeg-C is compared with the others; costs are of the same data set."""
    petct, mri = find_table("peers", ("ct", "pet")), find_table("peers", ("t1", "t1ce", "t2", "flair"))
    assert (petct.first, mri.first) == ("b", "c")
    assert petct.row("vnet").paper == {
        "Dice AutoPET": 53.21, "HD95 AutoPET": 242.78, "Dice HECKTOR": 55.61, "HD95 HECKTOR": 41.46,
        "M": 45.60, "G": 322.22, "training MB": 3820, "patches/s GPU": 58.99, "patches/s CPU": 0.14,
    }  # fmt: skip
    assert mri.row("vnet").paper == {
        "Dice": 88.86, "HD95": 5.26, "M": 45.61, "G": 322.85, "training MB": 3886, "patches/s GPU": 63.37,
        "patches/s CPU": 0.14,
    }  # fmt: skip
    assert mri.row("c").paper["Dice"] == 91.44
    assert petct.row("s").paper == {"M": 1.19, "G": 1.41}  # its Dice is of nnU-Net's framework
    assert all("fusion" not in mri.settings_of(row) for row in mri.rows)  # peers with streams keep them
