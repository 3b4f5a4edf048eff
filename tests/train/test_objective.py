"""The loss that the labels ask for, in float32 whatever the precision."""

from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from support.tiny_training import plan_of
from veloxseg.model.losses import SegmentationLoss, choose_loss, region_loss, segmentation_loss, two_class_loss
from veloxseg.prepare.plan import Plan
from veloxseg.train.objective import TERMS, Objective, TaughtObjective, build_objective, target_of
from veloxseg.train.recipe import Recipe, network_settings

SIZE = (32, 32, 64)


def build(plan: Plan, **settings: Any) -> Objective:
    recipe = Recipe(**{"model": "tiny", **settings})
    torch.manual_seed(0)
    return build_objective(*network_settings(recipe, plan), plan, recipe)


def loss_for(plan: Plan) -> SegmentationLoss:
    return choose_loss("ce_dice", target_of(plan))[0]


def sample(values: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(2, 2, *SIZE), torch.randint(0, values, (2, *SIZE))


def test_the_total_is_the_weighted_sum_and_reaches_every_parameter() -> None:
    objective = build(plan_of(), reconstruction_weight=0.3, transfer_weight=5.0)
    terms = objective(*sample())
    value = dict(zip(TERMS, terms.tolist(), strict=True))
    expected = value["cross_entropy"] + value["dice"] + 0.3 * value["reconstruction"] + 5 * value["transfer"]
    assert value["total"] == pytest.approx(expected, rel=1e-5)
    terms[0].backward()
    assert all(parameter.grad is not None for parameter in objective.parameters())


@pytest.mark.parametrize("deep_supervision", [True, False])
def test_two_classes_as_one_difference_train_the_same(deep_supervision: bool) -> None:
    objective = build(plan_of(), deep_supervision=deep_supervision, dropout=0.0).double()
    assert isinstance(objective, TaughtObjective)
    image, label = sample()
    image = image.double()
    results = []
    for difference in (True, False):
        objective.difference = difference
        objective.loss.keywords["segmentation"] = two_class_loss if difference else segmentation_loss
        objective.zero_grad()
        with mock.patch.object(Tensor, "float", Tensor.double):  # the objective computes its loss in float32
            terms = objective(image, label)
        terms[0].backward()
        results.append((terms.detach(), [p.grad for p in objective.parameters() if p.grad is not None]))
    (terms, gradients), (expected_terms, expected) = results
    torch.testing.assert_close(terms, expected_terms)
    for gradient, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("transfer", ["none", "l1", "affinity", "shared-roi"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_transfer_strategies(transfer: str, reduction: str) -> None:
    terms = build(plan_of(), transfer=transfer, reduction=reduction)(*sample())
    assert torch.isfinite(terms).all()
    assert (terms[TERMS.index("transfer")] > 0) == (transfer != "none")


def test_label_values_need_not_be_consecutive() -> None:
    odd = plan_of(labels={"background": 0, "organ": 2, "tumour": 7, "unsure": 5}, ignore_label=5)
    logits = torch.randn(2, 3, 4, 4, 4)
    classes = torch.randint(0, 4, (2, 4, 4, 4))  # 3 is ignored
    label = torch.tensor([0, 2, 7, 5])[classes]
    assert torch.equal(torch.stack(loss_for(odd)(logits, label)), torch.stack(segmentation_loss(logits, classes, 3)))


def test_regions_have_their_own_loss() -> None:
    regions = {"whole": (1, 2), "core": (2,)}
    plan = plan_of(labels={"background": 0, "oedema": 1, "core": 2}, regions=regions)
    logits, label = torch.randn(2, 2, 4, 4, 4), torch.randint(0, 3, (2, 4, 4, 4))
    expected = region_loss(logits, label, [(1, 2), (2,)])
    assert torch.equal(torch.stack(loss_for(plan)(logits, label)), torch.stack(expected))
    assert torch.isfinite(build(plan)(*sample(3))).all()


def test_a_patch_without_foreground_or_wholly_ignored_has_a_finite_gradient() -> None:
    plan = plan_of(labels={"background": 0, "lesion": 1, "unsure": 2}, ignore_label=2)
    for value in (0, 2):
        objective = build(plan)
        image, label = sample()
        terms = objective(image, torch.full_like(label, value))
        terms[0].backward()
        assert torch.isfinite(terms).all()
        assert all(torch.isfinite(p.grad).all() for p in objective.parameters() if p.grad is not None)


def test_without_teachers_the_deep_outputs_still_count() -> None:
    plain, single = build(plan_of(), teachers=False), build(plan_of(), teachers=False, deep_supervision=False)
    terms = plain(*sample())
    assert terms[3] == terms[4] == 0
    assert terms[0] != single(*sample())[0]
    assert not any("teacher" in name for name, _ in plain.named_parameters())


def test_bf16_keeps_the_loss_in_float32() -> None:
    objective = build(plan_of())
    with torch.autocast("cpu", torch.bfloat16):
        terms = objective(*sample())
    assert terms.dtype == torch.float32
    assert torch.allclose(terms, objective(*sample()), rtol=0.2)
