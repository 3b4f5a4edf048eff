"""Lesions found, missed and made up, against AutoPET's definitions written out plainly."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from veloxseg.evaluate.lesions import LesionSummary, detect

Mask = npt.NDArray[np.bool_]


def flood(mask: Mask) -> list[set[tuple[int, ...]]]:
    """Connected components by flood fill over faces and edges, one voxel at a time."""
    left = {tuple(map(int, index)) for index in np.argwhere(mask)}
    steps = [s for s in np.ndindex(3, 3, 3) if 1 <= sum(abs(i - 1) for i in s) <= 2]
    result = []
    while left:
        front = [left.pop()]
        part = set(front)
        while front:
            here = front.pop()
            for step in steps:
                there = tuple(h + s - 1 for h, s in zip(here, step, strict=True))
                if there in left:
                    left.remove(there)
                    part.add(there)
                    front.append(there)
        result.append(part)
    return result


@pytest.mark.parametrize("seed", range(6))
def test_equals_the_definitions(seed: int) -> None:
    random = np.random.default_rng(seed)
    prediction, label = random.random((9, 9, 9)) < 0.06, random.random((9, 9, 9)) < 0.06
    prediction |= label & (random.random((9, 9, 9)) < 0.3)
    found = detect(prediction, label, voxel_ml=0.5)
    predicted, labelled = flood(prediction), flood(label)
    hit = [part for part in labelled if any(prediction[v] for v in part)]
    false = [part for part in predicted if not any(label[v] for v in part)]
    assert len(found.lesions) == len(labelled)
    assert found.true_positives == len(hit)
    assert found.false_negatives == len(labelled) - len(hit)
    assert found.false_positives == len(false)
    assert found.false_negative_ml == pytest.approx(0.5 * sum(len(p) for p in labelled if p not in hit))
    assert found.false_positive_ml == pytest.approx(0.5 * sum(map(len, false)))
    expected = []
    for part in labelled:
        touching = [other for other in predicted if other & part]
        others = set().union(*(p for p in labelled if p is not part))
        own = set().union(*touching) - others
        expected.append((0.5 * len(part), 2 * len(own & part) / (len(own) + len(part))))
    pairs = sorted((lesion.volume_ml, lesion.dice) for lesion in found.lesions)
    np.testing.assert_allclose(pairs, sorted(expected))


def test_neighbours_share_a_face_or_an_edge() -> None:
    by_edge, by_corner = np.zeros((4, 4, 4), bool), np.zeros((4, 4, 4), bool)
    by_edge[1, 1, 1] = by_edge[2, 2, 1] = True
    by_corner[1, 1, 1] = by_corner[2, 2, 2] = True
    nothing = np.zeros((4, 4, 4), bool)
    assert len(detect(nothing, by_edge, 1).lesions) == 1
    assert len(detect(nothing, by_corner, 1).lesions) == 2


def test_a_bridge_over_two_lesions_is_not_punished() -> None:
    label, prediction = np.zeros((9, 3, 3), bool), np.zeros((9, 3, 3), bool)
    label[:3], label[6:] = True, True
    prediction[:] = True  # 27 voxels each, and 27 between them
    found = detect(prediction, label, 1)
    assert [lesion.dice for lesion in found.lesions] == pytest.approx([2 * 27 / (27 + 54)] * 2)


def test_empty_masks() -> None:
    nothing, something = np.zeros((3, 3, 3), bool), np.ones((3, 3, 3), bool)
    assert detect(nothing, nothing, 1).to_json() == {
        "lesions": 0,
        "lesions_found": 0,
        "lesions_missed": 0,
        "lesions_false": 0,
        "false_negative_volume_ml": 0,
        "false_positive_volume_ml": 0,
    }
    assert detect(something, nothing, 2).false_positive_ml == 54
    assert detect(nothing, something, 2).false_negative_ml == 54
    assert detect(nothing, something, 2).lesions[0].dice == 0


def test_rates() -> None:
    some = LesionSummary(lesions=10, found=6, false=2, false_negative_ml=0, false_positive_ml=0)
    assert (some.recall, some.precision) == (0.6, 0.75)
    assert some.f1 == pytest.approx(2 * 0.6 * 0.75 / (0.6 + 0.75))
    none = LesionSummary(lesions=0, found=0, false=0, false_negative_ml=0, false_positive_ml=0)
    assert all(map(math.isnan, (none.recall, none.precision, none.f1)))
    assert none.to_json()["f1"] is None
