"""How attention grows with the volume: PWA beside window attention (Swin's 7³) and full attention.

The paper gives PWA N·κ/S · (4C² + 2·B/S·C) multiply-accumulates for N voxels, C channels, the smallest windows B
and S, and κ = Σ r^(−3i) over the window pairs, against Swin's N · (4C² + 2·7³·C); both are linear in N. It states
that PWA's coefficient is 7.87 % of Swin's. That number is 3³/7³, the ratio of the window volumes in the attention
products: the projections 4C² and κ are left out. `coefficients` gives the ratio with and without them, and
`measure` what real modules do: one layer of stage 1 of VeloxSeg-B with one modality (16 channels, one head),
at a quarter of the patch's resolution, on one thread.
"""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from veloxseg.console import say
from veloxseg.machine import describe, peak_rss_mb, pin, rss_mb

if TYPE_CHECKING:
    from torch import nn

__all__ = ["PATCHES", "coefficients", "exponents", "measure"]

PATCHES = (48, 96, 192)  # each has 8 times the voxels of the one before
KINDS = ("PWA", "window 7³", "full")
WIDTH = 16
HEAD_SIZE = 4  # of PWA's queries and keys
BIG, SWIN_WINDOW, RATIO = 3, 7, 2


def coefficients(pairs: int = 4) -> dict[str, float]:
    """PWA's multiply-accumulates per voxel against Swin's by the paper's formulas, S = 1, for stage 1 of B."""
    kappa = sum(RATIO ** (-3 * i) for i in range(pairs))
    products = 2 * BIG**3 * WIDTH, 2 * SWIN_WINDOW**3 * WIDTH
    projections = 4 * WIDTH**2
    return {
        "window volumes only": products[0] / products[1],
        "with κ": kappa * products[0] / products[1],
        "with κ and projections": kappa * (projections + products[0]) / (projections + products[1]),
    }


def measure() -> list[dict[str, Any]]:
    """Seconds, memory and real multiply-accumulates of each kind at each patch, in turn in one process."""
    job = [sys.executable, "-m", "veloxseg.benchmark.growth"]
    rows: list[dict[str, Any]] = json.loads(subprocess.run([*job, "time"], stdout=subprocess.PIPE, check=True).stdout)
    machine = describe()
    for row in rows:
        say(f"  memory of {row['attention']} attention at {row['patch']}³")
        done = subprocess.run([*job, row["attention"], str(row["patch"])], stdout=subprocess.PIPE, check=True)
        row |= {"memory_mb": json.loads(done.stdout), "machine": machine}
    return rows


def exponents(rows: list[dict[str, Any]], quantity: str) -> dict[str, float]:
    """p of quantity ~ volume^p between the two largest patches: 1 is linear, 2 quadratic."""
    slopes = {}
    for kind in KINDS:
        smaller, larger = [row[quantity] for row in rows if row["attention"] == kind][-2:]
        slopes[kind] = math.log(larger / smaller) / math.log((PATCHES[-1] / PATCHES[-2]) ** 3)
    return slopes


def build(kind: str, patch: int) -> "nn.Module":
    """One attention layer on a feature of patch/4, as (M, B, X, Y, Z, C) → the same."""
    if kind == "PWA":
        from veloxseg.model.config import NetworkConfig
        from veloxseg.model.pwa import PairedWindowAttention

        # a feature of patch/4 with 16 channels is stage 2 of a twice as large network of half the width: this way
        # patches that are no multiple of 32, which a whole network could not take, can be measured as well
        config = NetworkConfig(
            in_channels=(1,),
            patch=(2 * patch, 2 * patch, 2 * patch),
            transformer_width=WIDTH // 2,
            windows=((BIG, BIG, BIG),) * 4,
            heads=(1, 1, 1, 1),
            head_sizes=(HEAD_SIZE,) * 4,
        )
        return PairedWindowAttention(config, 1)
    return _plain_attention(SWIN_WINDOW if kind == "window 7³" else patch // 4)


def _plain_attention(window: int) -> "nn.Module":
    """Attention within windows of one size (padded to fit, as Swin does), with C→C projections."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class PlainAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
            self.mix = nn.Linear(WIDTH, WIDTH)

        def forward(self, x_MBXYZC: torch.Tensor) -> torch.Tensor:
            size = x_MBXYZC.shape[2]
            pad = -size % window
            x = F.pad(x_MBXYZC[0], (0, 0, 0, pad, 0, pad, 0, pad))
            n, w = (size + pad) // window, window
            #   B X Y Z C  →  (B nx ny nz) 1 (x y z) C
            tokens = x.reshape(-1, n, w, n, w, n, w, WIDTH).permute(0, 1, 3, 5, 2, 4, 6, 7).reshape(-1, 1, w**3, WIDTH)
            q, k, v = self.qkv(tokens).chunk(3, dim=-1)
            out = self.mix(F.scaled_dot_product_attention(q, k, v))
            volume = out.reshape(-1, n, n, n, w, w, w, WIDTH).permute(0, 1, 4, 2, 5, 3, 6, 7)
            whole = volume.reshape(1, -1, n * w, n * w, n * w, WIDTH)
            return whole[:, :, :size, :size, :size]

    return PlainAttention()


def _run(kind: str, patch: int) -> Callable[[], object]:
    import torch

    layer = build(kind, patch).eval()
    side = patch // 4
    x = torch.randn(1, 1, side, side, side, WIDTH)

    def run() -> object:
        with torch.inference_mode():
            return layer(x)

    return run


def _time_all() -> list[dict[str, Any]]:
    from veloxseg.benchmark.timing import interleave
    from veloxseg.model.count import macs

    cases = [(kind, patch) for kind in KINDS for patch in PATCHES]
    results = interleave([_run(kind, patch) for kind, patch in cases], rounds=3)
    return [
        {
            "attention": kind,
            "patch": patch,
            "voxels": (patch // 4) ** 3,
            "macs": macs(build(kind, patch), (1, 1, patch // 4, patch // 4, patch // 4, WIDTH)),
            "seconds": result.median,
            **{f"seconds_{name}": value for name, value in asdict(result).items() if name in ("low", "high")},
        }
        for (kind, patch), result in zip(cases, results, strict=True)
    ]


def _memory(kind: str, patch: int) -> float:
    """What a pass adds to the process at its peak, in MB."""
    _run("full", PATCHES[0] // 2)()  # loads what any first pass loads
    run = _run(kind, patch)
    before = rss_mb()
    run()
    return max(0.0, (peak_rss_mb() or 0.0) - (before or 0.0))


if __name__ == "__main__":
    pin(1)
    print(json.dumps(_time_all() if sys.argv[1] == "time" else _memory(sys.argv[1], int(sys.argv[2]))))
