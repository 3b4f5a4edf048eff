"""The pictures of the documentation are drawn as all others are."""

from pathlib import Path

import numpy as np
from PIL import Image

from support.pictures import written  # noqa: F401 - a fixture
from veloxseg.image.views import palette
from veloxseg.machine import NOTICE
from veloxseg.phantom import brain, petct
from veloxseg.phantom.picture import brain_picture, petct_picture


def test_pictures_of_phantoms(written: list[str], tmp_path: Path) -> None:  # noqa: F811
    petct_picture([petct.render(petct.draw(0, 2), (50, 34, 100))], tmp_path / "petct.png")
    brain_picture(brain.render(brain.draw(0, 3), (42, 51, 40)), tmp_path / "brain.png")
    assert {"CT", "PET projection", "t1ce", "labels 1, 2, 4", "R", "L", "A", "P", NOTICE} <= set(written)
    colours = np.asarray(Image.open(tmp_path / "brain.png")).reshape(-1, 3)
    for colour in palette([1, 2, 4]).values():
        assert (colours == colour).all(axis=1).any()
