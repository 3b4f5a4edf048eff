"""SAM-Med3D: the network computes what the authors' code does, and clicks come from the label as they say."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from veloxseg.cli import main
from veloxseg.errors import ModelError
from veloxseg.image import Geometry, read_label
from veloxseg.peers import sam_med3d
from veloxseg.peers.sam_med3d import SamMed3D, Sizes
from veloxseg.study.prompted import cube_around, load_sam, next_click, normalised, segment

SMALL = Sizes(image=32, patch=8, width=12, depth=3, heads=2, window=6, everywhere=(1,), prompt=48)
TINY = Sizes(image=32, patch=16, width=12, depth=2, heads=2, window=3, everywhere=(1,), prompt=48, hidden=32)


def waves(network: SamMed3D) -> dict[str, torch.Tensor]:
    """Weights that anybody can make again."""
    return {
        name: 0.3 * torch.cos(1.7 * torch.arange(t.numel(), dtype=torch.float64) + len(name)).reshape(t.shape)
        for name, t in network.state_dict().items()
    }


def test_it_computes_what_the_authors_code_does() -> None:
    """Figures of their package (medim 0.1.2) with the same sizes and weights, in double precision."""
    network = SamMed3D(SMALL).double().eval()
    network.load_state_dict(waves(network))
    image = torch.sin(0.01 * torch.arange(32**3, dtype=torch.float64)).reshape(1, 1, 32, 32, 32)
    before = torch.cos(0.1 * torch.arange(16**3, dtype=torch.float64)).reshape(1, 1, 16, 16, 16)
    with torch.no_grad():
        embedding = network.embed(image)
        point = torch.tensor([[[3.0, 20.0, 9.0]]], dtype=torch.float64)
        logits = network.decode(embedding, point, torch.tensor([[1]]), before)
    expected = [0.3996251212517578, 0.31785568827435307, 0.3071991080941997, 0.2143989209247143]
    assert embedding[0, 0, 0, 0].tolist() == pytest.approx(expected, abs=1e-9)
    assert float(embedding.abs().sum()) == pytest.approx(799.6452597419454, abs=1e-6)
    expected = [0.027631240852046546, 0.05886677780397722, 0.03138804539682214, 0.05868524052533111]
    assert logits[0, 0, 3, 5, :4].tolist() == pytest.approx(expected, abs=1e-9)
    assert float(logits.abs().sum()) == pytest.approx(142.37992400969168, abs=1e-6)


def test_the_release_has_a_hundred_million_parameters() -> None:
    with torch.device("meta"):
        network = SamMed3D()
    assert sum(parameter.numel() for parameter in network.parameters()) == 100_509_232
    assert network.state_dict()["image_encoder.blocks.0.attn.rel_pos_d"].shape == (27, 64)
    assert network.state_dict()["image_encoder.blocks.2.attn.rel_pos_d"].shape == (15, 64)


def test_clicks_are_on_what_is_wrong() -> None:
    random = np.random.default_rng(0)
    target, mask = np.zeros((6, 6, 6), bool), np.zeros((6, 6, 6), bool)
    target[1:3, 1:3, 1:3] = mask[2:4, 1:3, 1:3] = True
    for _ in range(40):
        place, positive = next_click(mask, target, random)
        assert mask[place] != target[place] == positive
    for _ in range(10):
        assert target[next_click(np.zeros_like(mask), target, random)[0]]  # the first is on the label
    assert next_click(target, target, random) is None


def test_the_cube_lies_around_the_label() -> None:
    mask = np.zeros((40, 30, 20), bool)
    mask[10:13, 4:9, 15:16] = True
    affine = np.diag([-2.0, 1.0, 3.0, 1.0])
    affine[:3, 3] = 5, -7, 11
    cube = cube_around(mask, Geometry(shape=(40, 30, 20), affine=affine), 32)
    middle = (cube.affine @ [15.5, 15.5, 15.5, 1])[:3]
    assert middle == pytest.approx((affine @ [11, 6, 15, 1])[:3])
    assert cube.spacing == pytest.approx((1.5, 1.5, 1.5))
    assert cube.direction == pytest.approx(np.diag([-1.0, 1.0, 1.0]))


def test_normalisation_looks_at_what_is_above_zero() -> None:
    image = np.array([-3000.0, 0.0, 10.0, 20.0, 3000.0], np.float32)
    assert normalised(image, "pet")[[2, 3, 4]].mean() == pytest.approx(0, abs=1e-6)
    ct = normalised(image, "ct")
    clipped = np.array([10.0, 20.0, 1000.0])
    assert ct == pytest.approx((np.array([-1000, 0, *clipped]) - clipped.mean()) / clipped.std(ddof=1), abs=1e-5)


def test_a_mask_that_is_right_is_not_clicked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    network, target = SamMed3D(TINY).eval(), np.zeros((32, 32, 32), bool)
    target[8:24, 8:24, 8:24] = True
    seen = []

    def decode(embedding: object, point: torch.Tensor, positive: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        seen.append((tuple(point[0, 0].int().tolist()), bool(positive), float(logits.abs().sum())))
        return torch.from_numpy(target[2::4, 2::4, 2::4] * 2.0 - 1)[None, None].float()

    monkeypatch.setattr(network, "decode", decode)
    image = np.zeros(target.shape, np.float32)
    segment(network, image, target, 3, np.random.default_rng(0))
    assert target[seen[0][0]]
    assert seen[0][1:] == (True, 0.0)
    assert all(before > 0 for _, _, before in seen[1:])  # the last mask is a prompt, too


def test_masks_of_a_data_set(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sam_med3d, "BASE", TINY)
    torch.manual_seed(0)
    weights = SamMed3D(TINY).state_dict()
    save_file(weights, tmp_path / "sam.safetensors")
    torch.save({"model_state_dict": weights}, tmp_path / "sam.pth")
    data, cases = prepared.parent / "data", ["synthetic_0001", "synthetic_0003"]
    for file in ("sam.safetensors", "sam.pth"):
        words = f"prompt {data} -w {tmp_path}/{file} -o {tmp_path}/{file}-masks --modality PET --clicks 2"
        assert main([*words.split(), "--cases", *cases]) == 0
    for case in cases:
        first, second = (
            read_label(tmp_path / f"{file}-masks/{case}.nii.gz") for file in ("sam.safetensors", "sam.pth")
        )
        label = read_label(data / f"labelsTr/{case}.nii.gz")
        assert first.geometry.same_grid(label.geometry)
        assert np.array_equal(first.array, second.array)
    words = f"evaluate -p sam-med3d={tmp_path}/sam.pth-masks -l {data} -o {tmp_path}/report"
    assert main([*words.split(), "--cases", *cases]) == 0
    assert "sam-med3d" in (tmp_path / "report/report.html").read_text()
    assert main(f"prompt {data} -w {tmp_path}/sam.pth -o {tmp_path}/x --modality t1".split()) == 2
    assert "the cases have ct, pet" in capsys.readouterr().err


def test_where_weights_come_from_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"github\.com/uni-medical/SAM-Med3D"):
        load_sam(tmp_path / "nothing.pth")
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ModelError, match=r"does not fit SAM-Med3D .* in a, image_encoder"):
        load_sam(tmp_path / "other.safetensors")
