"""The short way has the values and gradients of the long one."""

import pytest
import torch

from veloxseg.model.losses import segmentation_loss
from veloxseg.train.twoclass import two_class_loss


@pytest.mark.parametrize("foreground", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("size", [1.0, 40.0])
@pytest.mark.parametrize("batch_dice", [False, True])
def test_equal_to_the_general_loss(foreground: float, size: float, batch_dice: bool) -> None:
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


def test_channels_last_logits() -> None:
    logits = torch.randn(2, 2, 4, 4, 4).to(memory_format=torch.channels_last_3d).requires_grad_()
    label = torch.randint(0, 2, (2, 4, 4, 4))
    sum(two_class_loss(logits, label)).backward()
    expected = logits.detach().clone().requires_grad_()
    sum(segmentation_loss(expected, label)).backward()
    torch.testing.assert_close(logits.grad, expected.grad)
