"""Lies in headers: each is refused, harmless or told; none scrambles or rescales an image in silence."""

import shutil
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

import veloxseg.image as vio
from support.dicom_lies import every_lie, outcome, write_lie

SEED, COUNT = 14, 220  # of each modality, in some seconds; all 806 lies are told by the long attack


@pytest.mark.parametrize("modality", ["CT", "PT"])
def test_no_lie_changes_an_image_in_silence(tmp_path: Path, modality: str) -> None:
    truth = vio.read(write_lie(tmp_path / "truth", None, modality, 0))
    assert truth.warnings == ()
    outcomes: Counter[str] = Counter()
    silent = []
    told = (lie for lie in every_lie(SEED) if lie.modality == modality)
    for number, lie in enumerate(islice(told, COUNT)):
        folder = write_lie(tmp_path / "lie", lie, modality, number % 4)
        result = outcome(folder, truth)
        shutil.rmtree(folder)
        outcomes[result] += lie.can_be_known
        if result not in ("refused", "unchanged", "warned") and lie.can_be_known:
            silent.append(f"{lie}: {result}")
    assert not silent
    assert outcomes["refused"] >= 80  # the lies are real: many are found out
    assert outcomes["unchanged"] >= 40  # and what does not touch the image is let be
