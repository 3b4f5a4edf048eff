"""The models of a benchmark as MODEL folders."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from veloxseg.benchmark.models import MODELS, find_model, write_folder
from veloxseg.errors import ConfigError
from veloxseg.model_folder import ModelFolder, load_network
from veloxseg.peers.registry import PEERS


def test_every_peer_and_preset_can_be_named() -> None:
    assert {"b", "s", "l", "b+", "c"} <= MODELS.keys()
    assert PEERS.keys() <= MODELS.keys()


def test_an_unknown_name_lists_the_others() -> None:
    with pytest.raises(ConfigError, match=r"no model 'bb'.*slim-unetr"):
        find_model("bb")


@pytest.mark.parametrize("name", ["b", "slim-unetr"])
@torch.no_grad()
def test_the_folder_holds_the_network_that_was_built(name: str, tmp_path: Path) -> None:
    model = replace(find_model(name), patch=(64, 64, 64))
    network = model.build()
    write_folder(model, network, tmp_path / name)
    folder = ModelFolder.open(tmp_path / name)
    image = torch.randn(model.input_shape)
    torch.testing.assert_close(load_network(folder)(image), network(image))
    assert json.loads((tmp_path / name / "model.json").read_text())["plan"]["patch"] == [64, 64, 64]
