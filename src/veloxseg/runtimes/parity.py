"""Does an exported graph give what the network gives? Measured against the network in float64. Imports torch.

Windows: random images, sparse ones (0.02 to 5 % of the voxels hold something, the rest is constant, where sums in
float32 lose digits), and a synthetic PET/CT-like body. Constant windows are left out: instance norm is ill-posed
there, and prediction skips them.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from veloxseg.errors import ModelError
from veloxseg.prepare.plan import Plan
from veloxseg.runtimes.decoding import Decoding
from veloxseg.runtimes.runtime import Runtime
from veloxseg.types import Floats

__all__ = ["LIMIT", "check_parity", "parity", "trial_windows"]

LIMIT = 1e-3  # largest difference of a probability that is accepted
LABELS = 0.9999  # least share of voxels with the same label
SHARES = (0.0002, 0.001, 0.005, 0.02, 0.05)


def trial_windows(plan: Plan, seed: int = 0) -> Iterator[tuple[str, Floats]]:
    """Name and (1, C, X, Y, Z) of every window that is compared."""
    random = np.random.default_rng(seed)
    shape = (1, len(plan.names), *plan.patch)
    yield "random", random.standard_normal(shape, np.float32)
    for share in SHARES:
        window = np.full(shape, -1.5, np.float32)
        content = random.random(plan.patch) < share
        window[..., content] = random.standard_normal((1, shape[1], int(content.sum())), np.float32) + 2
        yield f"sparse {share:.2%}", window
    yield "body", _body(shape, random)


def _body(shape: tuple[int, ...], random: np.random.Generator) -> Floats:
    """An ellipsoid in air with a hot spot, as a window at the border of a patient holds it."""
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, n) for n in shape[2:]], indexing="ij"))
    inside = (((grid - 0.4) / 0.8) ** 2).sum(0) < 1
    hot = ((grid - 0.3) ** 2).sum(0) < 0.03
    noise = 0.1 * random.standard_normal(shape).astype(np.float32)
    return np.asarray(np.where(inside, 0.3 + noise, -1.5) + 4 * hot, np.float32)


def parity(network: nn.Module, runtime: Runtime, plan: Plan) -> dict[str, Any]:
    """Largest probability difference and share of equal labels, per window and at worst."""
    decoding = Decoding(plan)
    exact = network.double()
    rows: list[dict[str, Any]] = []
    for name, window in trial_windows(plan):
        with torch.inference_mode():
            reference = exact(torch.from_numpy(window).double())[0].numpy()
        expected = decoding.scores(reference)
        found = decoding.scores(np.asarray(runtime(window)[0], np.float64))
        ours, theirs = decoding.probabilities(found), decoding.probabilities(expected)
        difference = max(float(np.abs(ours[key] - theirs[key]).max()) for key in theirs)
        equal = float((decoding.labels(found) == decoding.labels(expected)).mean())
        rows.append({"window": name, "probability_difference": difference, "equal_labels": equal})
    network.float()
    return {
        "reference": "the network in float64",
        "runtime": runtime.name,
        "limit_probability_difference": LIMIT,
        "limit_equal_labels": LABELS,
        "worst_probability_difference": max(row["probability_difference"] for row in rows),
        "worst_equal_labels": min(row["equal_labels"] for row in rows),
        "windows": rows,
    }


def check_parity(report: dict[str, Any]) -> None:
    """Refuses a graph that does not do what the network does."""
    difference, equal = report["worst_probability_difference"], report["worst_equal_labels"]
    if difference > LIMIT or equal < LABELS:
        raise ModelError(
            f"the exported graph differs from the network: probabilities by {difference:.2g} (limit {LIMIT:g}), "
            f"{equal:.4%} equal labels (limit {LABELS:.2%}); use another --format and report this"
        )
