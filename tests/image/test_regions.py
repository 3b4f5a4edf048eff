"""Boxes around labels hold all of them and nothing more."""

import numpy as np

from veloxseg.image.regions import components, label_boxes, nonzero_box


def test_boxes_are_tight() -> None:
    labels = np.zeros((20, 15, 12), np.uint8)
    labels[3:7, 5:6, 2:11] = 4
    labels[10, 14, 0] = 200
    assert nonzero_box(labels) == (slice(3, 11), slice(5, 15), slice(0, 11))
    assert label_boxes(labels) == {
        4: (slice(3, 7), slice(5, 6), slice(2, 11)),
        200: (slice(10, 11), slice(14, 15), slice(0, 1)),
    }
    assert nonzero_box(np.zeros_like(labels)) is None
    assert label_boxes(np.zeros_like(labels)) == {}


def test_boxes_do_not_depend_on_the_order_of_memory() -> None:
    labels = np.random.default_rng(0).integers(0, 4, (5, 6, 7)).astype(np.uint8)
    assert label_boxes(np.asfortranarray(labels)) == label_boxes(labels)


def test_lesions_are_joined_by_faces_and_edges_not_by_corners() -> None:
    mask = np.zeros((4, 4, 4), bool)
    mask[0, 0, 0] = mask[0, 1, 1] = True  # an edge in common
    mask[1, 2, 2] = True  # a corner in common
    numbered, sizes = components(mask)
    assert sorted(sizes.tolist()) == [1, 2]
    assert numbered[0, 0, 0] == numbered[0, 1, 1] != numbered[1, 2, 2]
