"""The network equals the authors', number for number; tiny stored outputs keep this true without the shared files."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from support.tiny_networks import CONFIGS, example, fill
from veloxseg import reference
from veloxseg.model.losses import sdkt_loss, segmentation_loss
from veloxseg.model.network import VeloxSeg
from veloxseg.model.sdkt import SDKTModel

AUTHORS = ("veloxseg_b_autopet2", "veloxseg_c_brats2021")


def load(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with safe_open(path, "pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118


def weights(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    prefix = "weights."
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


@pytest.mark.shared
@pytest.mark.parametrize("name", AUTHORS)
def test_logits_equal_the_authors(shared: Path, name: str) -> None:
    tensors, metadata = load(shared / "golden" / f"{name}.safetensors")
    network = VeloxSeg(reference.config(json.loads(metadata["config"]))).eval()
    reference.load_weights(network, weights(tensors))
    with torch.inference_mode():
        logits = network(tensors["input"])
    torch.testing.assert_close(logits, tensors["eval.logits"], atol=1e-4, rtol=0)


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("name", AUTHORS)
def test_training_equals_the_authors(shared: Path, name: str) -> None:
    tensors, metadata = load(shared / "golden" / f"{name}.safetensors")
    config = reference.config(json.loads(metadata["config"]))
    model = SDKTModel(config)
    reference.load_weights(model, weights(tensors))
    model.double()
    image, label = tensors["input"].double(), tensors["label"][:, 0]
    output = model(image)

    close = {"atol": 1e-3, "rtol": 1e-3, "check_dtype": False}
    for i, logits in enumerate(output.segmentations):
        torch.testing.assert_close(logits[..., ::4, ::4, ::4], tensors[f"train.seg{i}_stride4"], **close)
    reconstruction = output.reconstruction[..., ::4, ::4, ::4]
    torch.testing.assert_close(reconstruction, tensors["train.reconstruction_stride4"], **close)
    torch.testing.assert_close(output.student_gram, tensors["train.gram_seg"], **close | {"atol": 1e-5})
    for m, gram in enumerate(output.teacher_grams):
        torch.testing.assert_close(gram, tensors[f"train.gram_teacher{m}"], **close | {"atol": 1e-5})

    expected = json.loads(metadata["loss"])
    pairs = [segmentation_loss(logits, label) for logits in output.segmentations]
    assert [ce.item() for ce, _ in pairs] == pytest.approx(expected["ce"], rel=1e-3)
    assert [dice.item() for _, dice in pairs] == pytest.approx(expected["dice"], rel=1e-3)
    terms = sdkt_loss(output, image, label)
    assert terms.reconstruction.item() == pytest.approx(expected["reconstruction_mse"], rel=1e-3)
    assert terms.transfer.item() == pytest.approx(expected["gram_mse"], rel=1e-3)
    assert terms.total.item() == pytest.approx(expected["total"], rel=1e-3)

    terms.total.backward()
    ours = dict(model.named_parameters())
    norms = {key: norm for key, norm in json.loads(metadata["grad_norms"]).items() if norm >= 1e-4}
    assert len(norms) > 100
    for key, norm in norms.items():
        target, view = reference.view_of(key, config)
        assert float(view(ours[target].grad).norm()) == pytest.approx(norm, rel=1e-3), key


@pytest.mark.parametrize("name", CONFIGS)
def test_tiny_networks_equal_their_stored_outputs(name: str) -> None:
    tensors, metadata = load(Path(__file__).parent / "golden" / f"{name}.safetensors")
    numbers = json.loads(metadata["numbers"])
    config = CONFIGS[name]
    model = SDKTModel(config).double()
    fill(model)
    image, label = example(config)
    output = model(image.double())
    for i, logits in enumerate(output.segmentations):
        torch.testing.assert_close(
            logits[..., ::4, ::4, ::4].float(), tensors[f"segmentation{i}"], atol=1e-5, rtol=1e-5
        )
    torch.testing.assert_close(output.reconstruction[..., ::4, ::4, ::4].float(), tensors["reconstruction"])
    grams = torch.stack([output.student_gram, *output.teacher_grams]).float()
    torch.testing.assert_close(grams, tensors["gram"])
    terms = sdkt_loss(output, image.double(), label)
    assert {key: value.item() for key, value in vars(terms).items()} == pytest.approx(numbers["loss"], rel=1e-6)
    terms.total.backward()
    norms = {key: float(parameter.grad.norm()) for key, parameter in model.named_parameters()}
    # a bias in front of an instance norm has no effect: its gradient is rounding noise
    assert norms == pytest.approx(numbers["gradient_norms"], rel=1e-5, abs=1e-9)

    network = model.student.float().eval()
    with torch.inference_mode():
        logits = network(image)
    torch.testing.assert_close(logits[..., ::4, ::4, ::4], tensors["segmentation0"], atol=1e-4, rtol=1e-4)
