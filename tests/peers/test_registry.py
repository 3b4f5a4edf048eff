"""The registry: light to import, helpful when a name is wrong, and it says where each peer comes from."""

import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from veloxseg.errors import ConfigError, ShapeError
from veloxseg.model_folder import differing_names, save_weights
from veloxseg.peers.registry import PEERS, build_peer


def test_importing_the_registry_loads_neither_torch_nor_monai() -> None:
    code = "import sys, veloxseg.peers.registry; assert not {'torch', 'monai'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", PEERS)
def test_weights_are_saved_and_read_again(name: str, tmp_path: Path) -> None:
    network = build_peer(name, (1, 1), 2, (64, 64, 64))
    save_weights(network, tmp_path / "model.safetensors")
    assert differing_names(network, load_file(tmp_path / "model.safetensors")) == ""


def test_an_unknown_name_lists_the_valid_ones() -> None:
    with pytest.raises(ConfigError, match=r"no peer 'slim'.*segformer-3d.*slim-unetr"):
        build_peer("slim", (1, 1), 2, (96, 96, 96))


@pytest.mark.parametrize(
    "name", ["slim-unetr", "segformer-3d", "unetr++", "u-kan", "superlightnet", "swin-unetr", "unet"]
)
def test_a_patch_that_does_not_divide_is_refused_with_one_that_does(name: str) -> None:
    with pytest.raises(ShapeError, match=r"not divisible.*use \(128, 96, 96\)|use \(112, 96, 96\)"):
        build_peer(name, (1, 1), 2, (97, 96, 96))


def test_every_entry_says_where_it_comes_from_and_how_close_it_is() -> None:
    for name, peer in PEERS.items():
        assert all([peer.paper, peer.source, peer.closeness]), name
        assert 2015 < peer.year < 2027
