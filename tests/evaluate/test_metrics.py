"""Metrics equal MONAI's and a brute-force implementation, and the empty cases follow the stated policy."""

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veloxseg.evaluate.metrics import POLICY, dice, failed, score, surface
from veloxseg.image import read_label
from veloxseg.image.regions import bounding_box

Mask = npt.NDArray[np.bool_]
SPACING = (0.9, 1.7, 3.1)
SHAPE = (11, 9, 7)
TOLERANCE = 1.85  # no distance between voxels is this close to it that rounding decides


def random_masks(seed: int) -> tuple[Mask, Mask]:
    """Blobs that overlap in part, some of them at the border of the image."""
    from scipy.ndimage import gaussian_filter

    random = np.random.default_rng(seed)
    field = gaussian_filter(random.normal(size=SHAPE), 1.2)
    other = field + gaussian_filter(random.normal(size=SHAPE), 1.0) * 0.6
    prediction, label = field > np.quantile(field, 0.8), other > np.quantile(other, 0.75)
    return prediction, label


def brute_force(prediction: Mask, label: Mask, tolerance: float) -> dict[str, float]:
    """From the definitions, voxel by voxel, sharing nothing with the code under test."""

    def edge(mask: Mask) -> npt.NDArray[np.float64]:
        found = []
        for index in np.ndindex(mask.shape):
            if not mask[index]:
                continue
            for axis in range(3):
                for step in (-1, 1):
                    place = list(index)
                    place[axis] += step
                    inside = 0 <= place[axis] < mask.shape[axis]
                    if not inside or not mask[tuple(place)]:
                        found.append(tuple(i * s for i, s in zip(index, SPACING, strict=True)))
        return np.array(sorted(set(found)))

    ours, theirs = edge(prediction), edge(label)
    distance = np.sqrt(((ours[:, None] - theirs[None]) ** 2).sum(-1))
    there, back = np.sort(distance.min(1)), np.sort(distance.min(0))

    def percentile(values: npt.NDArray[np.float64]) -> float:
        position = 0.95 * (len(values) - 1)
        low = math.floor(position)
        high = min(low + 1, len(values) - 1)
        return float(values[low] + (position - low) * (values[high] - values[low]))

    hit = sum(bool(prediction[i] and label[i]) for i in np.ndindex(label.shape))
    return {
        "dice": 2 * hit / (prediction.sum() + label.sum()),
        "precision": hit / prediction.sum(),
        "recall": hit / label.sum(),
        "hd95_mm": max(percentile(there), percentile(back)),
        "nsd": ((there <= tolerance).sum() + (back <= tolerance).sum()) / (len(there) + len(back)),
    }


@pytest.mark.parametrize("seed", range(8))
def test_equals_brute_force(seed: int) -> None:
    prediction, label = random_masks(seed)
    found = score(prediction, label, SPACING, tolerance_mm=TOLERANCE)
    for name, value in brute_force(prediction, label, TOLERANCE).items():
        assert found.value(name) == pytest.approx(value, abs=1e-9), name


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.filterwarnings("ignore")  # MONAI's and torch's own
def test_equals_monai(seed: int) -> None:
    torch = pytest.importorskip("torch")
    monai = pytest.importorskip("monai.metrics")
    prediction, label = random_masks(seed + 100)
    found = score(prediction, label, SPACING, tolerance_mm=TOLERANCE)
    ours, theirs = (torch.from_numpy(np.stack([~mask, mask])[None].astype(np.float32)) for mask in (prediction, label))
    assert found.dice == pytest.approx(float(monai.compute_dice(ours, theirs, include_background=False)), abs=1e-6)
    hausdorff = monai.compute_hausdorff_distance(ours, theirs, percentile=95, spacing=SPACING)
    assert found.hd95_mm == pytest.approx(float(hausdorff), abs=1e-5)
    surface_dice = monai.compute_surface_dice(ours, theirs, [TOLERANCE], spacing=SPACING)
    assert found.nsd == pytest.approx(float(surface_dice), abs=1e-6)
    confusion = monai.get_confusion_matrix(ours, theirs, include_background=False)[0]
    assert found.precision == pytest.approx(
        float(monai.compute_confusion_matrix_metric("precision", confusion)), abs=1e-6
    )
    assert found.recall == pytest.approx(float(monai.compute_confusion_matrix_metric("recall", confusion)), abs=1e-6)


def test_known_distances() -> None:
    """Two voxels, three apart along the axis of 3.1 mm."""
    prediction, label = np.zeros(SHAPE, bool), np.zeros(SHAPE, bool)
    prediction[2, 2, 1] = label[2, 2, 4] = True
    found = score(prediction, label, SPACING)
    assert found.hd95_mm == pytest.approx(9.3)
    assert (found.dice, found.nsd, found.precision, found.recall) == (0, 0, 0, 0)
    assert found.outcome == "scored"  # both are there: the distance is measured, not punished
    assert score(prediction, label, SPACING, tolerance_mm=9.4).nsd == 1


def test_rounding_of_the_spacing_does_not_decide() -> None:
    prediction, label = np.zeros(SHAPE, bool), np.zeros(SHAPE, bool)
    prediction[2, 2, 1] = label[2, 2, 3] = True
    for step in (1.0, 1.00000003, 0.99999997):
        assert score(prediction, label, (1, 1, step), tolerance_mm=2).nsd == 1


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_properties(seed: int) -> None:
    prediction, label = random_masks(seed)
    one, other = score(prediction, label, SPACING), score(label, prediction, SPACING)
    assert (one.dice, one.hd95_mm, one.nsd) == pytest.approx((other.dice, other.hd95_mm, other.nsd))
    assert (one.precision, one.volume_error_ml) == pytest.approx((other.recall, -other.volume_error_ml))
    same = score(label, label, SPACING)
    assert (same.dice, same.hd95_mm, same.nsd, same.precision, same.recall, same.volume_error_ml) == (1, 0, 1, 1, 1, 0)
    assert score(prediction, label, (1.8, 3.4, 6.2)).hd95_mm == pytest.approx(2 * one.hd95_mm)


def test_volumes() -> None:
    prediction, label = np.zeros(SHAPE, bool), np.zeros(SHAPE, bool)
    prediction[:3, :2, :2], label[:2, :2, :2] = True, True
    found = score(prediction, label, (10, 10, 5))
    assert (found.volume_ml, found.label_volume_ml) == (6.0, 4.0)
    assert (found.volume_error_ml, found.volume_error_percent) == (2.0, 50.0)


def test_empty_masks_follow_the_policy() -> None:
    nothing, something = np.zeros((240, 240, 155), bool), np.zeros((240, 240, 155), bool)
    something[3, 3, 3] = True
    one_mm = (1.0, 1.0, 1.0)
    both = score(nothing, nothing, one_mm)
    assert both.outcome == "correctly empty"
    assert all(math.isnan(both.value(name)) for name in ("dice", "hd95_mm", "nsd", "precision", "recall"))
    missed = score(nothing, something, one_mm)
    assert missed.outcome == "missed"
    assert (missed.dice, missed.nsd, missed.precision, missed.recall) == (0, 0, 0, 0)
    assert missed.hd95_mm == pytest.approx(373.13, abs=0.01)  # what BraTS gives
    assert missed.volume_error_percent == -100
    alarm = score(something, nothing, one_mm)
    assert alarm.outcome == "false alarm"
    assert (alarm.dice, alarm.nsd, alarm.precision) == (0, 0, 0)
    assert math.isnan(alarm.recall)
    assert math.isnan(alarm.volume_error_percent)
    assert alarm.volume_error_ml == pytest.approx(0.001)
    lost = failed(1000, one_mm, 373.13)
    assert lost.outcome == "no prediction"
    assert (lost.dice, lost.recall, lost.hd95_mm, lost.volume_error_ml) == (0, 0, 373.13, -1.0)
    assert {both.outcome, missed.outcome, alarm.outcome, lost.outcome, "scored"} == set(POLICY)


def test_undefined_is_null_in_json() -> None:
    empty = np.zeros(SHAPE, bool)
    assert score(empty, empty, SPACING).to_json()["dice"] is None


def test_surface_at_the_border_of_the_image() -> None:
    full = np.ones((4, 4, 4), bool)
    assert np.count_nonzero(surface(full)) == 64 - 8  # all but the 2x2x2 core


def test_bounding_box() -> None:
    mask = np.zeros(SHAPE, bool)
    assert mask[bounding_box(mask)].size == 0
    mask[3, 2, 1] = mask[5, 2, 4] = True
    assert bounding_box(mask) == (slice(3, 6), slice(2, 3), slice(1, 5))


def test_dice_alone() -> None:
    assert dice(np.array([0, 1, 1, 2]), np.array([0, 1, 0, 0])) == pytest.approx(0.5)
    assert dice(np.zeros(3), np.ones(3)) == 0
    assert math.isnan(dice(np.zeros(3), np.zeros(3)))


@pytest.mark.filterwarnings("ignore")
def test_monai_agrees_on_empty_masks_or_gives_nothing() -> None:
    """Where MONAI has no number (infinite or NaN), ours is the one that the policy states."""
    torch = pytest.importorskip("torch")
    monai = pytest.importorskip("monai.metrics")
    nothing, something = np.zeros(SHAPE, bool), np.zeros(SHAPE, bool)
    something[2:5, 2:5, 2:5] = True

    def both(prediction: Mask, label: Mask) -> tuple[float, float]:
        pair = [torch.from_numpy(np.stack([~m, m])[None].astype(np.float32)) for m in (prediction, label)]
        distance = monai.compute_hausdorff_distance(*pair, percentile=95, spacing=SPACING)
        return float(distance), float(monai.compute_surface_dice(*pair, [TOLERANCE], spacing=SPACING))

    for prediction, label in ((nothing, something), (something, nothing)):
        distance, nsd = both(prediction, label)
        assert not math.isfinite(distance)
        found = score(prediction, label, SPACING)
        assert found.nsd == nsd == 0
        assert found.hd95_mm == pytest.approx(math.hypot(*np.multiply(SHAPE, SPACING)))
    assert all(map(math.isnan, both(nothing, nothing)))
    assert math.isnan(score(nothing, nothing, SPACING).nsd)


@pytest.mark.shared
@pytest.mark.filterwarnings("ignore")
def test_equals_monai_on_a_real_tumour(shared: Path) -> None:
    torch = pytest.importorskip("torch")
    monai = pytest.importorskip("monai.metrics")
    from scipy.ndimage import gaussian_filter

    volume = read_label(shared / "data" / "sts_petct" / "STS_002" / "CT_mask.nii.gz")
    label = volume.array == 1
    noise = gaussian_filter(np.random.default_rng(0).normal(size=label.shape), 3)
    prediction = gaussian_filter(label.astype(np.float32), 2) + 4 * noise > 0.5
    found = score(prediction, label, volume.geometry.spacing, tolerance_mm=2.0)
    ours, theirs = (torch.from_numpy(np.stack([~m, m])[None].astype(np.float32)) for m in (prediction, label))
    spacing = volume.geometry.spacing
    hausdorff = monai.compute_hausdorff_distance(ours, theirs, percentile=95, spacing=spacing)
    assert found.hd95_mm == pytest.approx(float(hausdorff), rel=1e-5)
    surface_dice = monai.compute_surface_dice(ours, theirs, [2.0], spacing=spacing)
    assert found.nsd == pytest.approx(float(surface_dice), abs=1e-4)
    assert 0.3 < found.dice < 0.99
