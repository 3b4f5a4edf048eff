"""The paper's cost tables from one command: 29 of 32 peer rows of HECKTOR and BraTS agree, three are explained."""

import json
from pathlib import Path
from typing import Any

import pytest

from veloxseg.benchmark.counts import agrees, cost_lines
from veloxseg.cli import main
from veloxseg.peers.published import DEVIATIONS, PUBLISHED
from veloxseg.peers.registry import PEERS


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("counts")
    command = ["benchmark", "--count-only", "--task", "all", "--json", str(folder / "a.json"), "--plot", str(folder)]
    with pytest.MonkeyPatch.context() as patch:  # real MACs are no matter here, and take most of the time
        patch.setattr("veloxseg.model.count.macs", lambda network, shape: 10**9)
        assert main(command) == 0
    assert {path.name for path in folder.glob("*.png")} == {f"cost-{task}.png" for task in PUBLISHED}
    return json.loads((folder / "a.json").read_text())


def test_every_network_of_the_papers_tables_has_a_row(rows: list[dict[str, Any]]) -> None:
    for task, table in PUBLISHED.items():
        assert [row["model"] for row in rows if row["task"] == task] == list(table)
        assert len(table.keys() & PEERS.keys()) == 16


def test_29_of_32_peer_rows_are_the_published_ones(rows: list[dict[str, Any]]) -> None:
    peers = [row for row in rows if row["model"] in PEERS and row["task"] != "autopet2"]
    assert len(peers) == 32
    differing = {(row["task"], row["model"]) for row in peers if not row["agrees"]}
    assert differing == DEVIATIONS.keys()
    assert len(differing) == 3
    assert all(row["agrees"] for row in rows if (row["task"], row["model"]) not in differing)


def test_deviations_are_explained_below_the_table(rows: list[dict[str, Any]]) -> None:
    lines = cost_lines([row for row in rows if row["task"] == "brats2021"])
    assert lines[-1].startswith("* VNet: the paper prints 322.85 G; 332.85 comes out")
    assert sum(line.endswith("*") for line in lines) == 1


def test_a_row_agrees_within_half_a_percent_or_the_last_digit() -> None:
    def row(parameters: float, macs: float) -> dict[str, Any]:
        published = {"parameters": 1.43, "macs": 300.0}
        return {"parameters_as_published": parameters * 1e6, "macs_as_published": macs * 1e9, "published": published}

    assert agrees(row(1.44, 301.4))
    assert not agrees(row(1.445, 300))
    assert not agrees(row(1.43, 302))


def test_an_own_model_is_counted_on_its_own_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dataclasses import replace

    from veloxseg.benchmark.models import find_model, write_folder

    model = replace(find_model("s"), patch=(32, 32, 64))
    write_folder(model, model.build(), tmp_path / "mine")
    assert main(["benchmark", "--count-only", "-m", str(tmp_path / "mine"), "--json", str(tmp_path / "a.json")]) == 0
    (row,) = json.loads((tmp_path / "a.json").read_text())
    assert (row["title"], row["input"], row["agrees"]) == ("mine", [2, 32, 32, 64], None)
    assert "2×32×32×64, 2 classes" in capsys.readouterr().out
