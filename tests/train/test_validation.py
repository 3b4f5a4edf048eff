"""Dice as the evaluation has it, per case, per structure, per choice of modalities."""

import math

import numpy as np
import pytest

from support.tiny_training import plan_of
from veloxseg.train.validation import case_dice, mean_dice, structures, subset_name, subsets


def test_regions_overlap_and_ignored_voxels_do_not_count() -> None:
    plan = plan_of(
        labels={"background": 0, "oedema": 1, "core": 2, "unsure": 3},
        regions={"whole": (1, 2), "core": (2,)},
        ignore_label=3,
    )
    label = np.array([[[0, 1, 2, 3]]])
    predicted = np.array([[[0, 2, 2, 1]]])
    assert structures(plan) == {"whole": (1, 2), "core": (2,)}
    assert case_dice(predicted, label, plan) == {"whole": 1.0, "core": pytest.approx(2 / 3)}


def test_a_structure_that_is_nowhere_does_not_count() -> None:
    cases = [{"a": 0.5, "b": math.nan}, {"a": 1.0, "b": 0.2}]
    assert mean_dice(cases) == pytest.approx((0.75 + 0.2) / 2)
    assert math.isnan(mean_dice([{"a": math.nan}]))
    assert math.isnan(mean_dice([]))


def test_subsets_of_modalities() -> None:
    names = [subset_name(chosen) for chosen in subsets(("ct", "pet"))]
    assert names == ["ct", "pet", "ct+pet"]
    assert len(subsets(("t1", "t1ce", "t2", "flair"))) == 15
