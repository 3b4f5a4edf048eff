"""Properties of the whole network, in training and evaluation."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from support.tiny_networks import CONFIGS, TINY, example, fill
from veloxseg.errors import ConfigError
from veloxseg.model.config import preset
from veloxseg.model.layers import InstanceNorm
from veloxseg.model.losses import TRANSFERS, sdkt_loss
from veloxseg.model.network import VeloxSeg
from veloxseg.model.sdkt import SDKTModel, gram_matrix


def filled(model: nn.Module) -> nn.Module:
    fill(model)
    return model


@pytest.mark.parametrize("name", CONFIGS)
def test_images_to_logits(name: str) -> None:
    config = CONFIGS[name]
    network = VeloxSeg(config).eval()
    with torch.inference_mode():
        assert network(example(config, batch=2)[0]).shape == (2, config.classes, *config.patch)


@pytest.mark.parametrize("patch", [(32, 32, 32), (32, 96, 64)])
def test_any_multiple_of_32_trains_and_predicts(patch: tuple[int, int, int]) -> None:
    """Down to a last stage of a single voxel, whose instance norm is zero."""
    config = replace(TINY, patch=patch)
    model, (image, label) = filled(SDKTModel(config)), example(config)
    sdkt_loss(model(image), image, label).total.backward()
    model.eval()
    with torch.no_grad():
        fast = model.student(image)
    torch.testing.assert_close(fast, model.student(image), atol=1e-3, rtol=1e-3)


def test_the_teacher_is_not_in_the_inference_weights() -> None:
    model = SDKTModel(TINY)
    ours = set(model.student.state_dict())
    assert ours == set(VeloxSeg(TINY).state_dict())
    assert not any("teacher" in name for name in ours)
    assert {name.split(".")[0] for name in model.state_dict()} == {"student", "teachers"}


def test_the_students_logits_are_those_of_the_plain_network() -> None:
    model = filled(SDKTModel(TINY)).eval()
    image = example(TINY)[0]
    with torch.no_grad():
        assert torch.equal(model(image).segmentations[0], model.student(image))


def test_samples_of_a_batch_do_not_meet() -> None:
    network = filled(VeloxSeg(TINY)).eval()
    image = example(TINY, batch=3)[0]
    with torch.no_grad():
        together = network(image)
        apart = torch.cat([network(sample[None]) for sample in image])
    torch.testing.assert_close(together, apart, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_gradients_reach_every_parameter(transfer: str) -> None:
    model = filled(SDKTModel(TINY))
    image, label = example(TINY)
    sdkt_loss(model(image), image, label, transfer=transfer).total.backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert without == []
    weights = [name for name, p in model.named_parameters() if name.endswith("weight") and not p.grad.any()]
    assert weights == []


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last_3d])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_one_sample_equal_those_of_the_same_sample_twice(
    layout: torch.memory_format, dtype: torch.dtype
) -> None:
    """PyTorch's own instance norm fails this on a CPU: batch 1 with a channels-last gradient."""
    config = replace(TINY, patch=(64, 64, 64))  # with fewer voxels in the last stage, its norm is ill-conditioned
    model = filled(SDKTModel(config)).to(dtype)
    image, label = example(config)
    image = image.to(dtype)
    gradients = []
    for repeat in (1, 2):
        batch = image.repeat(repeat, 1, 1, 1, 1).contiguous(memory_format=layout)
        model.zero_grad()
        sdkt_loss(model(batch), batch, label.repeat(repeat, 1, 1, 1)).total.backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters()})
    for name, gradient in gradients[0].items():
        scale = gradient.abs().max().clamp(min=1e-3)
        tolerance = 1e-3 if dtype == torch.float32 else 1e-9
        torch.testing.assert_close(gradients[1][name] / scale, gradient / scale, atol=tolerance, rtol=0, msg=name)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last_3d])
@pytest.mark.parametrize("gradient_layout", [torch.contiguous_format, torch.channels_last_3d])
@pytest.mark.parametrize("mean", [0.0, 100.0])
def test_instance_norm_is_exact_in_every_layout(
    layout: torch.memory_format, gradient_layout: torch.memory_format, mean: float
) -> None:
    x = torch.randn(1, 4, 8, 8, 8, generator=torch.Generator().manual_seed(0)) * 0.1 + mean
    gradient = torch.randn(1, 4, 8, 8, 8, generator=torch.Generator().manual_seed(1))
    truth = x.double().requires_grad_()
    variance, centre = torch.var_mean(truth, (2, 3, 4), correction=0, keepdim=True)
    expected = (truth - centre) / torch.sqrt(variance + 1e-5)
    expected.backward(gradient.double())
    ours = x.contiguous(memory_format=layout).requires_grad_()
    output = InstanceNorm()(ours)
    output.backward(gradient.contiguous(memory_format=gradient_layout))
    torch.testing.assert_close(output.double(), expected, atol=2e-3, rtol=0)
    torch.testing.assert_close(ours.grad.double(), truth.grad, atol=2e-2, rtol=1e-3)


def test_modalities_are_split_by_their_channels() -> None:
    """With (1, 2) channels, the second modality is channels 1 and 2, not the second half of equal chunks."""
    config = CONFIGS["unequal"]
    network = filled(VeloxSeg(config)).eval()
    embedding = network.encoder.embedding
    image = example(config)[0]
    changed = image.clone()
    changed[:, 1] += 1
    with torch.no_grad():
        before, after = embedding(image), embedding(changed)
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1])


def test_gram_matrix_is_blind_to_place() -> None:
    features = torch.randn(2, 4, 3, 3, 3)
    shuffled = features.flatten(2)[..., torch.randperm(27)].view_as(features)
    torch.testing.assert_close(gram_matrix(shuffled), gram_matrix(features))
    expected = features[1].flatten(1) @ features[1].flatten(1).T / (4 * 27)
    torch.testing.assert_close(gram_matrix(features)[1], expected)


def test_teachers_need_the_transformer_stream() -> None:
    with pytest.raises(ConfigError, match="train VeloxSeg itself"):
        SDKTModel(replace(TINY, attention="none"))


def test_drop_path_and_dropout_act_in_training_only() -> None:
    network = filled(VeloxSeg(replace(TINY, drop_path=0.5, conv_dropout=0.1, attention_dropout=0.1)))
    image = example(TINY)[0]
    with torch.no_grad():
        assert not torch.equal(network(image), network(image))
        network.eval()
        assert torch.equal(network(image), network(image))


def test_initialisation() -> None:
    torch.manual_seed(0)
    network = VeloxSeg(preset("b"))
    head = network.head[0].weight
    assert head.std().item() == pytest.approx((2 / (1 + 1e-4) / (16 * 27)) ** 0.5, rel=0.05)
    qkv = network.encoder.stages[3].transformer.blocks[0].attention.qkv
    assert qkv.weight.std().item() == pytest.approx((2 / (1 + 1e-4) / 128) ** 0.5, rel=0.05)
    assert not qkv.bias.any()
    table = network.encoder.stages[1].transformer.blocks[0].attention.bias.table
    assert table.std().item() == pytest.approx(0.02, rel=0.1)
