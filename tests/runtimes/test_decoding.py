"""Labels without a soft-max are the labels of a soft-max; regions nest as BraTS means them."""

import numpy as np
import pytest

from veloxseg.runtimes.decoding import Decoding

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("labels", [2, 3, 5])
def test_labels_are_the_arg_max_of_soft_max(labels, make_plan):
    decoding = Decoding(make_plan(labels))
    logits = RANDOM.standard_normal((labels, 9, 8, 7)).astype(np.float32)
    soft = np.exp(logits) / np.exp(logits).sum(0)
    scores = decoding.scores(logits)
    assert (decoding.labels(scores) == soft.argmax(0)).all()
    assert (decoding.foreground(scores) == (soft.argmax(0) > 0)).all()
    for name, probability in decoding.probabilities(scores).items():
        np.testing.assert_allclose(probability, soft[int(name[-1])], atol=1e-6)


def test_label_values_need_not_be_consecutive(make_plan):
    plan = make_plan(3)
    decoding = Decoding(make_plan(2, labels={"background": 0, "core": 1, "enhancing": 4}))
    logits = RANDOM.standard_normal((3, 5, 5, 5)).astype(np.float32)
    assert (decoding.labels(logits) == np.array([0, 1, 4])[logits.argmax(0)]).all()
    assert Decoding(plan).dtype == np.uint8
    assert Decoding(make_plan(2, labels={"background": 0, "far": 300})).dtype == np.uint16


def test_brats_regions_become_brats_labels(make_plan):
    labels = {"background": 0, "necrotic_core": 1, "oedema": 2, "enhancing": 4}
    plan = make_plan(2, labels=labels, regions={"WT": (1, 2, 4), "TC": (1, 4), "ET": (4,)})
    decoding = Decoding(plan)
    for truth in (0, 1, 2, 4):
        inside = [truth in values for values in plan.regions.values()]
        scores = np.where(inside, 2.0, -2.0).astype(np.float32).reshape(3, 1, 1, 1)
        assert decoding.labels(scores).item() == truth


def test_nnunet_regions_use_the_class_order_of_the_data_set(make_plan):
    labels = {"background": 0, "whole": 1, "core": 2}
    decoding = Decoding(make_plan(2, labels=labels, regions={"whole": (1, 2), "core": (2,)}))
    assert decoding.values == (1, 2)


def test_skipped_windows_have_no_probability(make_plan):
    decoding = Decoding(make_plan(2))
    assert decoding.probabilities(np.zeros((1, 2, 2, 2), np.float32))["label1"].max() == 0
