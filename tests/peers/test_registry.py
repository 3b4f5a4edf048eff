"""The registry: light to import, helpful when a name is wrong, and true to the paper's table."""

import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from veloxseg.errors import ConfigError, ShapeError
from veloxseg.model.count import macs_as_published, parameters_as_published
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
        assert (peer.parameters is None) == (peer.macs is None)


# the other files of this folder hold the figures of the peers that they test
HERE = (
    "unet",
    "vnet",
    "mednext-s",
    "unetr",
    "swin-unetr",
    "unetr++",
    "u-kan",
    "segformer-3d",
    "slim-unetr",
    "superlightnet",
)


@pytest.mark.parametrize("name", HERE)
def test_figures_are_those_of_the_papers_table_within_three_percent(name: str) -> None:
    peer = PEERS[name]
    network = build_peer(name, (1, 1), 2, (96, 96, 96))
    assert parameters_as_published(network) == pytest.approx(peer.parameters * 1e6, rel=0.03)
    assert macs_as_published(network, (1, 2, 96, 96, 96)) == pytest.approx(peer.macs * 1e9, rel=0.03)
