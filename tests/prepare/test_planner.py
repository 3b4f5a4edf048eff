"""The plan: readable, overridable, and the paper's where the paper says."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.cases import from_network
from veloxseg.dataset.dataset import Case, Dataset
from veloxseg.dataset.splits import assign_splits, given_folds, make_folds
from veloxseg.errors import ConfigError, ShapeError
from veloxseg.prepare.fingerprint import network_axes
from veloxseg.prepare.network_input import axis_order, label_to_network, to_network
from veloxseg.prepare.plan import Plan
from veloxseg.prepare.planner import BUDGET, choose_patch, choose_spacing, coarsen, make_plan, refine

DATASET = Dataset(
    name="tiny",
    layout="table",
    root=None,  # type: ignore[arg-type]
    modalities=("pet", "ct"),
    labels={"background": 0, "a": 1, "b": 2, "ignore": 3},
    regions={"all": (1, 2), "b": (2,)},
    ignore_label=3,
    cases=(Case(name="x", patient="x", images={}),),
)


def fingerprint(**ct: Any) -> dict[str, Any]:
    numbers = {"percentile_0.5": -80.0, "percentile_99.5": 200.0, "mean": 30.0, "std": 35.0}
    grid = {"median_spacing": [1.0, 1.0, 3.0], "fine_spacing": [0.8, 0.8, 1.5], "median_shape": [400.0, 400.0, 120.0]}
    common = {**grid, "intensity": {"foreground": numbers, "body": numbers}}
    return {
        "modalities": {
            "pet": {**common, "kind": "pet", "on_label_grid": 0},
            "ct": {**common, "kind": "ct", "on_label_grid": 9, **ct},
        },
        "labels": {},
    }


def test_plan_follows_the_paper_and_survives_json() -> None:
    plan = make_plan(DATASET, fingerprint())
    pet, ct = plan.modalities
    assert plan.names == ("pet", "ct")
    assert plan.reference == "ct"  # the labels are drawn on it
    assert (ct.normalisation.scheme, ct.normalisation.low, ct.normalisation.high) == ("clip_zscore", -80.0, 200.0)
    assert pet.normalisation.scheme == "log_body"
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_overrides() -> None:
    plan = make_plan(
        DATASET,
        fingerprint(),
        spacing=(2, 2, 2),
        patch=(128, 128, 64),
        reference="pet",
        register="rigid",
        normalise={"ct": "zscore_body", "pet": "none"},
    )
    assert (plan.spacing, plan.patch, plan.reference, plan.register) == ((2, 2, 2), (128, 128, 64), "pet", "rigid")
    assert [m.normalisation.scheme for m in plan.modalities] == ["none", "zscore_body"]
    assert plan.windows == ((4, 4, 2), (8, 8, 4), (4, 4, 2), (4, 4, 2))  # the paper's, for HECKTOR's patch


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"patch": (100, 96, 96)}, ShapeError, r"use \(96, 96, 96\)"),
        ({"spacing": (0, 1, 1)}, ConfigError, "positive"),
        ({"reference": "mr"}, ConfigError, "has pet, ct"),
        ({"normalise": {"ct": "minmax"}}, ConfigError, "choose clip_zscore"),
        ({"register": "deformable"}, ConfigError, "choose none"),
    ],
)
def test_bad_settings_say_what_would_do(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_plan(DATASET, fingerprint(), **arguments)


def test_patch_fits_image_and_budget() -> None:
    assert choose_patch((1, 1, 1), [1, 1, 1], [240, 240, 155]) == (96, 96, 96)  # BraTS in the paper
    assert choose_patch((1, 1, 1), [1, 1, 1], [35, 50, 35]) == (32, 64, 32)  # small images need no large patch
    assert choose_patch((1, 1, 5), [1, 1, 5], [400, 400, 40])[2] == 32  # thick slices: a flat patch
    for shape in ([20, 20, 20], [64, 500, 64], [512, 512, 900]):
        patch = choose_patch((1, 1, 2), [1, 1, 2], shape)
        assert all(side % 32 == 0 for side in patch)
        assert patch[0] * patch[1] * patch[2] <= BUDGET


def test_large_structures_let_the_finest_axes_be_coarser() -> None:
    """Soft-tissue sarcomas: 0.98 × 0.98 × 3.27 mm, the smallest of 35 mL."""
    grid = {"median_spacing": [0.977, 0.977, 3.27], "fine_spacing": [0.9, 0.9, 3.27], "median_shape": [159, 160, 61]}
    labels = {"tumour": {"lesions": 35, "lesion_ml_percentiles": {"5": 35.4}}}
    plan = make_plan(DATASET, {**fingerprint(**grid), "labels": labels})
    assert plan.spacing[0] == plan.spacing[1] == pytest.approx(1.95, abs=0.05)
    assert plan.spacing[2] == 3.27
    assert plan.patch == (64, 64, 64)
    assert "--spacing 0.977 0.977 3.27 keeps" in plan.why
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_small_structures_keep_the_spacing_of_the_scans() -> None:
    whole_body = np.array([800.0, 800.0, 1000.0])
    assert coarsen((2, 2, 3), whole_body, diameter=6) == (2, 2, 3)
    assert coarsen((2, 2, 3), whole_body, diameter=None) == (2, 2, 3)
    assert coarsen((1, 1, 1), whole_body, diameter=24) == (2, 2, 2)  # 12 voxels across, however large the scan is


def test_small_structures_of_tiny_scans_get_a_finer_grid() -> None:
    """Hippocampus: crops of 35 × 50 × 35 mm, whose parts are a dozen voxels across."""
    grid = {"median_spacing": [1, 1, 1], "fine_spacing": [1, 1, 1], "median_shape": [35, 50, 35]}
    labels = {"anterior": {"lesions": 200, "lesion_ml_percentiles": {"5": 1.1}}}
    plan = make_plan(DATASET, {**fingerprint(**grid), "labels": labels})
    assert plan.spacing == (0.5, 0.5, 0.5)
    assert "--spacing 1 1 1 keeps" in plan.why
    assert "13 voxels across" in plan.why


def test_scans_with_room_or_large_structures_are_not_refined() -> None:
    crop = np.array([35.0, 50.0, 35.0])
    assert refine((1, 1, 1), crop, diameter=30) == (1, 1, 1)  # as wide as it may be
    assert refine((1, 1, 1), crop, diameter=None) == (1, 1, 1)
    assert refine((1, 1, 1), 4 * crop, diameter=10) == (1, 1, 1)  # would be too large
    assert refine((1, 1, 3), crop, diameter=8) == (0.5, 0.5, 1.5)  # all axes alike: slices stay thick


def test_thick_slices_are_not_upsampled_to_the_median_of_the_others() -> None:
    assert choose_spacing([1, 1, 2], [0.8, 0.8, 1]) == (1, 1, 2)
    assert choose_spacing([1, 1, 6], [0.8, 0.8, 3]) == (1, 1, 3)


def cases(count: int, visits: int = 2, **extra: Any) -> list[Case]:
    return [Case(name=f"p{i}_{v}", patient=f"p{i}", images={}, **extra) for i in range(count) for v in range(visits)]


def test_split_is_6_2_2_by_patient_and_by_seed() -> None:
    found = cases(50)
    splits = assign_splits(found, seed=1)
    counts = [list(splits.values()).count(part) for part in ("train", "validation", "test")]
    assert counts == [60, 20, 20]
    assert all(splits[f"p{i}_0"] == splits[f"p{i}_1"] for i in range(50))
    assert splits == assign_splits(found[::-1], seed=1)
    assert splits != assign_splits(found, seed=2)


def test_even_three_patients_give_three_parts() -> None:
    for count in range(1, 12):
        parts = list(assign_splits(cases(count, 1), seed=0).values())
        assert len(parts) == count
        assert set(parts) == {"train", "validation", "test"} if count >= 3 else "train" in parts


def test_a_given_test_part_is_honoured_and_the_rest_is_7_1() -> None:
    found = [*cases(40, 1), *(Case(name=f"t{i}", patient=f"t{i}", images={}, split="test") for i in range(7))]
    splits = assign_splits(found, seed=0)
    assert [list(splits.values()).count(part) for part in ("train", "validation", "test")] == [35, 5, 7]


def test_folds_cover_every_patient_once_and_never_the_test_cases() -> None:
    found = cases(20)
    splits = assign_splits(found, seed=0)
    folds = make_folds(found, splits, 4, seed=0)
    validated = [name for fold in folds for name in fold["validation"]]
    assert sorted(validated) == sorted(name for name, part in splits.items() if part != "test")
    for fold in folds:
        assert not {n.split("_")[0] for n in fold["train"]} & {n.split("_")[0] for n in fold["validation"]}


def test_nnunet_folds_are_honoured() -> None:
    found = cases(3, 1)
    assert given_folds(found, [(["p0_0", "gone"], ["p1_0"])]) == [{"train": ["p0_0"], "validation": ["p1_0"]}]


def test_slices_across_different_axes_are_brought_to_one() -> None:
    """Sagittal and axial scans with thick slices: the median over patient axes would fit neither of them."""
    sagittal = {"mr": {"spacing": [9.0, 0.7, 0.7], "shape": [12, 300, 300]}}
    axial = {"mr": {"spacing": [0.7, 0.7, 9.0], "shape": [300, 300, 12]}}
    assert network_axes([sagittal, axial]) == "slices"
    assert network_axes([sagittal, sagittal]) == network_axes([axial]) == "patient"
    assert axis_order([9.0, 0.7, 0.7], "slices") == [1, 2, 0]
    assert axis_order([0.7, 0.7, 9.0], "slices") == [0, 1, 2]
    assert axis_order([1.0, 1.0, 1.0], "slices") == [0, 1, 2]
    assert axis_order([9.0, 0.7, 0.7], "patient") == [0, 1, 2]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_labels_return_from_a_grid_with_slices_last(axis: int, tools: Any) -> None:
    """What N2 of the newcomer met: with the slices' axis last nothing is lost, whichever way the slices lie."""
    shape, spacing = [40, 44, 48], [1.0, 1.0, 1.0]
    shape[axis], spacing[axis] = 10, 6.0
    affine = tools.centred(tuple(shape), tuple(spacing))
    image = tools.volume(tools.phantom("mr", tuple(shape), affine), affine)
    label = tools.volume(tools.lesion(tuple(shape), affine), affine)
    plan = replace(tools.plan({"t1": "mr"}, (1.0, 1.0, 6.0)), axes="slices")
    array, placement = to_network({"t1": image}, plan)
    assert array.shape[3] <= 10
    assert np.array_equal(from_network(label_to_network(label, placement), placement), label.array)
