"""The objective, on cases that can be worked out by hand."""

import pytest
import torch

from veloxseg.errors import ConfigError
from veloxseg.model.losses import (
    TRANSFERS,
    Target,
    choose_loss,
    region_loss,
    sdkt_loss,
    segmentation_loss,
    two_class_loss,
)
from veloxseg.model.sdkt import SDKTOutput

LABEL = torch.tensor([[[[0, 1], [2, 1]]]])  # (1, 1, 2, 2)


def certain(label: torch.Tensor, classes: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(label, classes).movedim(-1, 1) * 200.0 - 100


def test_a_perfect_prediction_costs_nothing() -> None:
    cross_entropy, dice = segmentation_loss(certain(LABEL, 3), LABEL)
    assert cross_entropy.item() == pytest.approx(0, abs=1e-5)
    assert dice.item() == pytest.approx(0, abs=1e-5)


def test_an_absent_class_that_is_not_predicted_costs_nothing() -> None:
    empty = torch.zeros(1, 2, 2, 2, dtype=torch.long)
    assert segmentation_loss(certain(empty, 2), empty)[1].item() == pytest.approx(0, abs=1e-5)


def test_ignored_voxels_count_nowhere() -> None:
    label = LABEL.clone()
    label[0, 0, 0, 0] = 9
    logits = torch.randn(1, 3, 1, 2, 2)
    changed = logits.clone()
    changed[0, :, 0, 0, 0] += torch.tensor([5.0, -3.0, 1.0])
    for a, b in zip(
        segmentation_loss(logits, label, ignore=9), segmentation_loss(changed, label, ignore=9), strict=True
    ):
        assert a.item() == pytest.approx(b.item(), rel=1e-6)


def test_a_patch_with_nothing_known_has_a_finite_loss_without_gradient_noise() -> None:
    label = torch.full((1, 2, 2, 2), 9)
    logits = torch.randn(1, 3, 2, 2, 2, requires_grad=True)
    cross_entropy, dice = segmentation_loss(logits, label, ignore=9)
    (cross_entropy + dice).backward()
    assert cross_entropy.item() == 0
    assert logits.grad.isfinite().all()


def test_regions_overlap() -> None:
    regions = ((1, 2), (2,))
    logits = torch.stack([torch.where(torch.isin(LABEL, torch.tensor(r)), 100.0, -100.0) for r in regions], 1)
    cross_entropy, dice = region_loss(logits, LABEL, regions)
    assert cross_entropy.item() == pytest.approx(0, abs=1e-5)
    assert dice.item() == pytest.approx(0, abs=1e-5)
    assert region_loss(-logits, LABEL, regions)[1].item() > 0.9


def output() -> tuple[SDKTOutput, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    image = torch.randn(2, 2, 8, 8, 8)
    label = torch.zeros(2, 8, 8, 8, dtype=torch.long)
    label[:, 2:5] = 1
    features = [torch.randn(2, 4, 2, 2, 2) for _ in range(3)]
    result = SDKTOutput(
        segmentations=[torch.randn(2, 2, 8, 8, 8) for _ in range(4)],
        reconstruction=torch.randn(2, 2, 8, 8, 8),
        student_features=features[0],
        teacher_features=features[1:],
    )
    return result, image, label


def test_the_total_is_the_weighted_sum() -> None:
    terms = sdkt_loss(*output())
    parts = terms.cross_entropy + terms.dice + 0.5 * terms.reconstruction + 2.0 * terms.transfer
    assert terms.total.item() == pytest.approx(parts.item())


def test_gram_by_hand_mean_and_sum() -> None:
    result, image, label = output()
    squares = [(result.student_gram - gram).square() for gram in result.teacher_grams]
    mean = sdkt_loss(result, image, label).transfer
    assert mean.item() == pytest.approx(torch.stack([s.mean() for s in squares]).mean().item())
    total = sdkt_loss(result, image, label, reduction="sum").transfer
    assert total.item() == pytest.approx(torch.stack([s.sum() for s in squares]).sum().item() / 2)


@pytest.mark.parametrize("name", [name for name in TRANSFERS if name != "none"])
def test_equal_features_transfer_nothing_and_others_do(name: str) -> None:
    result, image, label = output()
    same = SDKTOutput(
        segmentations=result.segmentations,
        reconstruction=result.reconstruction,
        student_features=result.student_features,
        teacher_features=[result.student_features] * 2,
    )
    assert sdkt_loss(same, image, label, transfer=name).transfer.item() == 0
    assert sdkt_loss(result, image, label, transfer=name).transfer.item() > 0


def test_unknown_strategies_list_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="choose from gram, none, l1, affinity, shared-roi"):
        sdkt_loss(*output(), transfer="style")
    with pytest.raises(ConfigError, match="choose mean or sum"):
        sdkt_loss(*output(), reduction="median")


def test_batch_dice_makes_a_false_alarm_in_an_empty_patch_cost_something() -> None:
    label = torch.zeros(2, 8, 8, 8, dtype=torch.long)
    label[0, :4] = 1
    gradients = []
    for batch_dice in (False, True):
        logits = torch.stack([certain(label, 2)[0], certain(label.flip(0), 2)[1]]) * 0.1  # the same alarm in both
        logits.requires_grad_()
        segmentation_loss(logits, label, batch_dice=batch_dice)[1].backward()
        assert logits.grad is not None
        gradients.append(logits.grad[1].abs().sum().item())
    assert gradients[1] > 1000 * gradients[0]


@pytest.mark.parametrize("foreground", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("size", [1.0, 40.0])
@pytest.mark.parametrize("batch_dice", [False, True])
def test_the_two_class_form_equals_the_general_one(foreground: float, size: float, batch_dice: bool) -> None:
    torch.manual_seed(0)
    logits = size * torch.randn(3, 2, 5, 6, 7, dtype=torch.float64)
    label = (torch.rand(3, 5, 6, 7) < foreground).long()
    results = []
    for loss in (segmentation_loss, two_class_loss):
        leaf = logits.clone().requires_grad_()
        cross_entropy, dice = loss(leaf, label, batch_dice=batch_dice)
        (0.3 * cross_entropy + 1.7 * dice).backward()
        results.append((cross_entropy.detach(), dice.detach(), leaf.grad))
    for first, second in zip(*results, strict=True):
        torch.testing.assert_close(second, first, rtol=1e-9, atol=1e-12)


def test_the_two_class_form_takes_channels_last_logits() -> None:
    logits = torch.randn(2, 2, 4, 4, 4).to(memory_format=torch.channels_last_3d).requires_grad_()
    label = torch.randint(0, 2, (2, 4, 4, 4))
    sum(two_class_loss(logits, label)).backward()
    expected = logits.detach().clone().requires_grad_()
    sum(segmentation_loss(expected, label)).backward()
    torch.testing.assert_close(logits.grad, expected.grad)


def test_the_labels_decide_the_form_of_a_loss() -> None:
    logits, label = torch.randn(2, 2, 3, 3, 3), torch.randint(0, 2, (2, 3, 3, 3))
    short, difference = choose_loss("ce_dice", Target(values=(0, 1)))
    assert difference
    general, takes_difference = choose_loss("ce_dice", Target(values=(0, 7)))
    assert not takes_difference
    for one, other in zip(short(logits[:, 1:] - logits[:, :1], label), general(logits, 7 * label), strict=True):
        assert one.item() == pytest.approx(other.item(), rel=1e-5)


def test_an_unknown_loss_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="unknown loss 'hinge'; choose from ce_dice"):
        choose_loss("hinge", Target(values=(0, 1)))
