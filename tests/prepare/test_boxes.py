"""Boxes around labels hold all of them and nothing more."""

import numpy as np

from veloxseg.prepare.boxes import label_boxes, nonzero_box


def test_boxes_are_tight() -> None:
    labels = np.zeros((20, 15, 12), np.uint8)
    labels[3:7, 5:6, 2:11] = 4
    labels[10, 14, 0] = 200
    assert nonzero_box(labels) == (slice(3, 11), slice(5, 15), slice(0, 11))
    assert dict(label_boxes(labels)) == {
        4: (slice(3, 7), slice(5, 6), slice(2, 11)),
        200: (slice(10, 11), slice(14, 15), slice(0, 1)),
    }
    assert nonzero_box(np.zeros_like(labels)) is None
    assert label_boxes(np.zeros_like(labels)) == []
