"""A synthetic PREPARED of bright balls, and a network small enough to train in tests."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.files import write_json
from veloxseg.model.config import preset
from veloxseg.prepare.plan import ModalityPlan, Normalisation, Plan
from veloxseg.prepare.store import write_case

PATCH = (32, 32, 64)
FOUR = (4, 4, 4, 4)
ONE = (1, 1, 1, 1)
TINY = replace(
    preset("s"),
    base_width=8,
    transformer_width=8,
    group_sizes=FOUR,
    head_sizes=FOUR,
    expansions=ONE,
    transformer_expansions=ONE,
    heads=ONE,
)


def plan_of(**changes: Any) -> Plan:
    modalities = tuple(
        ModalityPlan(name=name, kind=name, normalisation=Normalisation(scheme="none")) for name in ("ct", "pet")
    )
    plan = Plan(
        dataset="synthetic",
        modalities=modalities,
        reference="ct",
        spacing=(2.0, 2.0, 2.0),
        patch=PATCH,
        windows=(),
        labels={"background": 0, "lesion": 1},
    )
    return replace(plan, **changes)


def write_prepared(folder: Path, plan: Plan, split: dict[str, str], lesions: int = 2) -> Path:
    """Cases of noise with bright balls, whose labels go through the plan's values in turn."""
    (folder / "data").mkdir(parents=True)
    write_json(folder / "plan.json", plan.to_json())
    write_json(folder / "fingerprint.json", {})
    cases = [{"name": name, "patient": name, "split": part} for name, part in split.items()]
    write_json(folder / "cases.json", {"seed": 0, "cases": cases, "folds": []})
    values = [value for value in plan.labels.values() if value]
    for index, name in enumerate(split):
        random = np.random.default_rng(index)
        shape = (36, 34, 70)
        image = 0.5 * random.standard_normal((len(plan.modalities), *shape), dtype=np.float32)
        label = np.zeros(shape, np.uint8)
        for lesion in range(lesions):
            centre, radius = random.uniform([8, 8, 28], [26, 26, 46]), random.uniform(4, 7)
            ball = sum((axis - c) ** 2 for axis, c in zip(np.ogrid[:36, :34, :70], centre, strict=True)) < radius**2
            label[ball] = values[lesion % len(values)]
        image[:, label > 0] += 3
        write_case(folder, name, image, label, {"case": name, "made_from": str(index)}, seed=index)
    return folder
