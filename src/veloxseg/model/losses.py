"""The losses of the paper (Appendix "Details of Loss Function") and of its comparison of transfer strategies.

    L = mean over deep outputs (CE + Dice) + λ_rc · MSE(reconstruction, input) + λ_sdkt · transfer

CE + Dice is an entry of `LOSSES`, from which the recipe's `loss` chooses. Two classes have a short form of it with the
same values in half the time: one number per voxel instead of two, and its gradient written down. With
d = logit₁ - logit₀ and p = σ(d), soft-max and cross entropy of two classes are those of one sigmoid, so for a label t,
N voxels and samples of Σp + Σt = S voxels

    CE = mean(softplus(d) - d·t)                     ∂CE/∂d = (p - t) / N
    Dice = (2 Σ p·t + s) / (S + s)                   ∂(1 - Dice)/∂p = (Dice - 2t) / (S + s)

VeloxSeg gives d itself, by half of its head's work (`decoder.logit_difference`).

Legend: B batch, K class or region, C channel, N voxel, XYZ space.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from veloxseg.errors import ConfigError, shown
from veloxseg.kernels.calling import kernels_for
from veloxseg.kernels.voxels import two_class_gradient, two_class_sums
from veloxseg.model.sdkt import SDKTOutput

__all__ = [
    "LOSSES",
    "TRANSFERS",
    "LossTerms",
    "SegmentationLoss",
    "Target",
    "choose_loss",
    "reconstruction_loss",
    "region_loss",
    "sdkt_loss",
    "segmentation_loss",
    "two_class_loss",
]

SMOOTH = 1e-5  # keeps Dice defined for a class that is absent from label and prediction
AFFINITY_GRID = 8  # affinity compares all pairs of positions, so it looks at a pooled grid of this size


@dataclass(frozen=True, kw_only=True)
class LossTerms:
    """The total, for the optimiser, and what it is made of, for people."""

    total: Tensor
    cross_entropy: Tensor
    dice: Tensor
    reconstruction: Tensor
    transfer: Tensor


# (scores, label) → a term that compares voxels and a term that compares regions: cross entropy and Dice in the paper
SegmentationLoss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True)
class Target:
    """What the values of a label image mean to a loss."""

    values: tuple[int, ...] = ()  # the label value of each class in the order of the logits, background first
    regions: tuple[tuple[int, ...], ...] | None = None  # instead: label values of each region; regions may overlap
    ignore: int | None = None  # the value of voxels that count nowhere
    batch_dice: bool = False  # sums run over the samples of a batch, too

    @property
    def is_two_class(self) -> bool:
        """Labels are 0 and 1 and nothing else."""
        return self.regions is None and self.ignore is None and self.values == (0, 1)

    def classes(self, label_BXYZ: Tensor) -> tuple[Tensor, int | None]:
        """The number of each voxel's class, and the number that stands for voxels to ignore."""
        label = label_BXYZ.long()
        if self.values == tuple(range(len(self.values))):
            return label, self.ignore
        ignored = len(self.values)
        table = torch.zeros(max(*self.values, self.ignore or 0) + 1, dtype=torch.long, device=label.device)
        table[list(self.values)] = torch.arange(len(self.values), device=label.device)
        if self.ignore is not None:
            table[self.ignore] = ignored
        return table[label], None if self.ignore is None else ignored


def choose_loss(name: str, target: Target) -> tuple[SegmentationLoss, bool]:
    """The loss of this name for such labels; and whether it takes two classes as the difference of their logits."""
    if name not in LOSSES:
        raise ConfigError(f"unknown loss {shown(name)!r}; choose from {', '.join(LOSSES)}")
    if target.is_two_class and name in TWO_CLASS_FORMS:
        return partial(TWO_CLASS_FORMS[name], batch_dice=target.batch_dice), True
    return partial(LOSSES[name], target=target), False


# -- the losses of segmentation --------------------------------------------------------------------------------------


def ce_dice(logits_BKXYZ: Tensor, label_BXYZ: Tensor, target: Target) -> tuple[Tensor, Tensor]:
    """Cross entropy and soft Dice, of classes or of regions: the paper's."""
    if target.regions is not None:
        return region_loss(logits_BKXYZ, label_BXYZ, target.regions, target.ignore, batch_dice=target.batch_dice)
    classes_BXYZ, ignore = target.classes(label_BXYZ)
    return segmentation_loss(logits_BKXYZ, classes_BXYZ, ignore, batch_dice=target.batch_dice)


def segmentation_loss(
    logits_BKXYZ: Tensor, label_BXYZ: Tensor, ignore: int | None = None, *, batch_dice: bool = False
) -> tuple[Tensor, Tensor]:
    """Cross entropy and soft Dice over the foreground classes. Voxels labelled `ignore` count nowhere."""
    label = label_BXYZ.long()
    cross_entropy = F.cross_entropy(logits_BKXYZ, label, ignore_index=-100 if ignore is None else ignore)
    probabilities = logits_BKXYZ.softmax(1)[:, 1:]
    classes = torch.arange(1, logits_BKXYZ.shape[1], device=label.device).view(1, -1, 1, 1, 1)
    target = label[:, None] == classes
    if ignore is None:
        return cross_entropy, _soft_dice(probabilities, target, batch_dice)
    known = label != ignore
    cross_entropy = torch.where(known.any(), cross_entropy, logits_BKXYZ.sum() * 0)  # all ignored: 0, not NaN
    return cross_entropy, _soft_dice(probabilities * known[:, None], target, batch_dice)


def region_loss(
    logits_BKXYZ: Tensor,
    label_BXYZ: Tensor,
    regions: Sequence[Sequence[int]],
    ignore: int | None = None,
    *,
    batch_dice: bool = False,
) -> tuple[Tensor, Tensor]:
    """The same for overlapping regions (BraTS WT, TC, ET), one sigmoid each: binary cross entropy and Dice."""
    target = torch.stack([torch.isin(label_BXYZ, label_BXYZ.new_tensor(values)) for values in regions], 1)
    known = torch.ones_like(target[:, :1]) if ignore is None else (label_BXYZ != ignore)[:, None]
    losses = F.binary_cross_entropy_with_logits(logits_BKXYZ, target.to(logits_BKXYZ.dtype), reduction="none")
    cross_entropy = (losses * known).sum() / (known.sum() * len(regions)).clamp(min=1)
    return cross_entropy, _soft_dice(logits_BKXYZ.sigmoid() * known, target, batch_dice)


def _soft_dice(probabilities_BKXYZ: Tensor, target_BKXYZ: Tensor, batch_dice: bool) -> Tensor:
    """1 - (2 Σ p·t + s) / (Σ p + Σ t + s), averaged over classes and samples.

    With `batch_dice` the sums run over the samples too. Taken by itself, a sample without a lesion has a Dice next to 0
    whatever is predicted, hence hardly a gradient against a false alarm; taken with the others it has one.
    """
    probabilities, target = (probabilities_BKXYZ.flatten(2), target_BKXYZ.flatten(2).to(probabilities_BKXYZ.dtype))
    overlap = torch.linalg.vecdot(probabilities, target)
    size = probabilities.sum(-1) + target.sum(-1)
    if batch_dice:
        overlap, size = overlap.sum(0), size.sum(0)
    dice: Tensor = (2 * overlap + SMOOTH) / (size + SMOOTH)
    return (1 - dice).mean()


class _TwoClassLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, difference_B1XYZ: Tensor, label_BXYZ: Tensor, batch_dice: bool) -> tuple[Tensor, Tensor]:
        d_BN = difference_B1XYZ.flatten(1)
        t_BN = label_BXYZ.flatten(1).to(d_BN.dtype)
        cross_entropy = F.binary_cross_entropy_with_logits(d_BN, t_BN)
        p_BN = d_BN.sigmoid()
        size_B = p_BN.sum(1) + t_BN.sum(1)
        overlap_B = torch.linalg.vecdot(p_BN, t_BN)
        if batch_dice:
            size_B, overlap_B = size_B.sum(0, keepdim=True), overlap_B.sum(0, keepdim=True)
        size_B = size_B + SMOOTH
        dice_B = (2 * overlap_B + SMOOTH) / size_B
        ctx.save_for_backward(p_BN, t_BN, dice_B, size_B)
        ctx.shape = difference_B1XYZ.shape
        return cross_entropy, (1 - dice_B).mean()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        p_BN, t_BN, dice_B, size_B = ctx.saved_tensors
        of_cross_entropy, of_dice = gradients
        scale_B1 = (of_dice / len(size_B) / size_B)[:, None]  # with batch_dice there is one sample for all
        d_BN = torch.mul(t_BN, -2 * scale_B1).add_(dice_B[:, None] * scale_B1)
        d_BN.mul_(torch.addcmul(p_BN, p_BN, p_BN, value=-1))  # ∂p/∂d = p - p²
        d_BN.add_(torch.sub(p_BN, t_BN).mul_(of_cross_entropy / p_BN.numel()))
        return d_BN.view(ctx.shape), None, None


class _FastTwoClassLoss(torch.autograd.Function):
    """The same by kernels of our own, with sums in float64."""

    @staticmethod
    def forward(ctx: Any, difference_B1XYZ: Tensor, label_BXYZ: Tensor, batch_dice: bool) -> tuple[Tensor, Tensor]:
        d_BN, t_BN = difference_B1XYZ.flatten(1), label_BXYZ.to(torch.uint8).flatten(1).contiguous()
        sums_B4 = two_class_sums(d_BN, t_BN)
        cross_entropy = sums_B4[:, 0].sum() / d_BN.numel()
        size_B, overlap_B = sums_B4[:, 1] + sums_B4[:, 2], sums_B4[:, 3]
        if batch_dice:
            size_B, overlap_B = size_B.sum(0, keepdim=True), overlap_B.sum(0, keepdim=True)
        size_B = size_B + SMOOTH
        dice_B = (2 * overlap_B + SMOOTH) / size_B
        ctx.save_for_backward(d_BN, t_BN, dice_B, size_B)
        ctx.shape = difference_B1XYZ.shape
        return cross_entropy.float(), (1 - dice_B).mean().float()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        d_BN, t_BN, dice_B, size_B = ctx.saved_tensors
        of_cross_entropy, of_dice = gradients
        once_B = of_dice / len(size_B) / size_B
        both = (dice_B * once_B).expand(len(d_BN)).tolist()  # with batch_dice there is one sample for all
        once = once_B.expand(len(d_BN)).tolist()
        gradient = two_class_gradient(d_BN, t_BN, float(of_cross_entropy) / d_BN.numel(), both, once)
        return gradient.view(ctx.shape), None, None


def two_class_loss(scores_BKXYZ: Tensor, label_BXYZ: Tensor, *, batch_dice: bool = False) -> tuple[Tensor, Tensor]:
    """`segmentation_loss` of labels 0 and 1, in its short form; scores are two logits or their difference."""
    difference = scores_BKXYZ if scores_BKXYZ.shape[1] == 1 else scores_BKXYZ[:, 1:] - scores_BKXYZ[:, :1]
    form = _TwoClassLoss if kernels_for(difference) is None else _FastTwoClassLoss
    return form.apply(difference.contiguous(), label_BXYZ, batch_dice)  # type: ignore[no-untyped-call]


# A loss is a function (logits, label, target) → two terms, and a line here; a loss of one term gives 0 as the other.
LOSSES: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {"ce_dice": ce_dice}
# A loss may have a second form, which takes two classes as the difference of their logits.
TWO_CLASS_FORMS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {"ce_dice": two_class_loss}


# -- the terms of the teachers ---------------------------------------------------------------------------------------


def reconstruction_loss(output: SDKTOutput, image_BCXYZ: Tensor) -> Tensor:
    """Mean squared error against the network's own input, over voxels and channels."""
    return F.mse_loss(output.reconstruction, image_BCXYZ)


def gram_transfer(output: SDKTOutput, label_BXYZ: Tensor, reduction: str) -> Tensor:
    """SDKT: Gram matrices of student and teachers, without stop-gradient. `sum` is the paper's printed formula."""
    student = output.student_gram
    losses = [F.mse_loss(student, teacher, reduction=reduction) for teacher in output.teacher_grams]
    if reduction == "sum":  # squared norms per sample, added over the modalities
        return torch.stack(losses).sum() / len(student)
    return torch.stack(losses).mean()


def l1_transfer(output: SDKTOutput, label_BXYZ: Tensor, reduction: str) -> Tensor:
    """Features voxel by voxel: what the paper shows to fail, since the regions of interest differ."""
    return _mean(
        F.l1_loss(output.student_features, teacher, reduction=reduction) for teacher in output.teacher_features
    )


def affinity_transfer(output: SDKTOutput, label_BXYZ: Tensor, reduction: str) -> Tensor:
    """Cosine similarities between all pairs of positions, on a pooled grid."""
    student = _affinity(output.student_features)
    return _mean(F.mse_loss(student, _affinity(teacher), reduction=reduction) for teacher in output.teacher_features)


def _affinity(x_BCXYZ: Tensor) -> Tensor:
    x, y, z = (min(AFFINITY_GRID, side) for side in x_BCXYZ.shape[2:])
    positions_BCN = F.normalize(F.adaptive_avg_pool3d(x_BCXYZ, (x, y, z)).flatten(2), dim=1)
    return positions_BCN.mT @ positions_BCN


def shared_roi_transfer(output: SDKTOutput, label_BXYZ: Tensor, reduction: str) -> Tensor:
    """Mean feature (agent) over the labelled region only, where both tasks should agree."""
    size = output.student_features.shape[2:]
    roi_B1XYZ = F.adaptive_max_pool3d((label_BXYZ > 0).to(output.student_features.dtype)[:, None], size)
    student = _agent(output.student_features, roi_B1XYZ)
    return _mean(
        F.mse_loss(student, _agent(teacher, roi_B1XYZ), reduction=reduction) for teacher in output.teacher_features
    )


def _agent(x_BCXYZ: Tensor, roi_B1XYZ: Tensor) -> Tensor:
    return (x_BCXYZ * roi_B1XYZ).sum((2, 3, 4)) / roi_B1XYZ.sum((2, 3, 4)).clamp(min=1)


def no_transfer(output: SDKTOutput, label_BXYZ: Tensor, reduction: str) -> Tensor:
    """Teachers reconstruct, and nothing is transferred."""
    return output.student_features.new_zeros(())


def _mean(losses: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(losses)).mean()


TRANSFERS: dict[str, Callable[[SDKTOutput, Tensor, str], Tensor]] = {
    "gram": gram_transfer,
    "none": no_transfer,
    "l1": l1_transfer,
    "affinity": affinity_transfer,
    "shared-roi": shared_roi_transfer,
}


def sdkt_loss(
    output: SDKTOutput,
    image_BCXYZ: Tensor,
    label_BXYZ: Tensor,
    *,
    segmentation: SegmentationLoss = segmentation_loss,
    transfer: str = "gram",
    reduction: str = "mean",
    reconstruction_weight: float = 0.5,
    transfer_weight: float = 2.0,
) -> LossTerms:
    """All terms of the paper's objective, deep outputs weighted equally."""
    if transfer not in TRANSFERS:
        raise ConfigError(f"unknown transfer {transfer!r}; choose from {', '.join(TRANSFERS)}")
    if reduction not in ("mean", "sum"):
        raise ConfigError(f"unknown reduction {reduction!r}; choose mean or sum")
    pairs = [segmentation(logits, label_BXYZ) for logits in output.segmentations]
    cross_entropy = torch.stack([pair[0] for pair in pairs]).mean()
    dice = torch.stack([pair[1] for pair in pairs]).mean()
    reconstruction = reconstruction_loss(output, image_BCXYZ)
    transferred = TRANSFERS[transfer](output, label_BXYZ, reduction)
    total = cross_entropy + dice + reconstruction_weight * reconstruction + transfer_weight * transferred
    return LossTerms(
        total=total, cross_entropy=cross_entropy, dice=dice, reconstruction=reconstruction, transfer=transferred
    )
