"""Mean attention distance of every stage and window pair (the paper's figure and its appendix).

    MAD = 1/L Σ_i Σ_j W_ij D_ij

A token sits at the centre of its small window, so the distance of two tokens is, along each axis, their offset × small
window × stride × spacing, in millimetres. The same place in another modality has distance 0. The paper has one edge
length s for all axes; `spacing=(s, s, s)` gives that. Weights come from queries, keys and position bias, as the fused
kernel returns none. Windows of a stage are compared by the two-sided rank-sum test, as the figure's legend has it.

Legend: N window, H head, L token of a window (of all modalities), C channel.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from veloxseg.model.config import STAGES, STRIDES, PairedWindow
from veloxseg.model.network import VeloxSeg
from veloxseg.model.pwa import PairedWindowAttention
from veloxseg.model.windows import window_count
from veloxseg.types import Spacing

__all__ = ["attention_distances", "mean_attention_distance", "summarise_attention", "token_distances"]

# p at most, and the mark that the figure's legend gives it
STARS = ((1e-4, "****"), (1e-3, "***"), (1e-2, "**"), (0.05, "*"), (1.0, "ns"))
LEAST_MM = 1.0  # of an axis: windows of one token look no distance at all
LEGEND = "ns p > 0.05, * p ≤ 0.05, ** p ≤ 0.01, *** p ≤ 0.001, **** p ≤ 0.0001"
Distances = dict[tuple[int, int], list[float]]  # (stage, pair) → MAD of each window and head


def token_distances(pair: PairedWindow, stride: int, spacing: Spacing, modalities: int) -> Tensor:
    """(M·L, M·L) in millimetres."""
    axes = [torch.arange(side, dtype=torch.float64) for side in pair.tokens]
    position_L3 = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, 2)
    unit_3 = torch.tensor([s * stride * mm for s, mm in zip(pair.small, spacing, strict=True)], dtype=torch.float64)
    distance_LL = torch.cdist(position_L3 * unit_3, position_L3 * unit_3, compute_mode="donot_use_mm_for_euclid_dist")
    return distance_LL.repeat(modalities, modalities)


def mean_attention_distance(weights_NHLL: Tensor, distance_LL: Tensor) -> Tensor:
    """(N, H): the distance that a query looks, weighted by attention, mean over the queries."""
    return (weights_NHLL.double() * distance_LL).sum(-1).mean(-1)


def attention_distances(network: VeloxSeg, images: Iterable[Tensor], spacing: Spacing) -> Distances:
    """Over all images (1, C, X, Y, Z), blocks, windows and heads."""
    found: Distances = defaultdict(list)
    hooks = []
    for stage in range(STAGES):
        transformer = network.encoder.stages[stage].transformer
        for block in () if transformer is None else transformer.blocks:  # type: ignore[union-attr]
            hooks.append(_watch(block.attention, stage, spacing, found))
    try:
        with torch.no_grad():
            for image in images:
                network(image)
    finally:
        for hook in hooks:
            hook.remove()
    return dict(found)


def _watch(layer: PairedWindowAttention, stage: int, spacing: Spacing, found: Distances) -> Any:
    modalities = layer.bias.modalities
    distances = [token_distances(pair, STRIDES[stage], spacing, modalities) for pair in layer.pairs]
    counts = [math.prod(window_count(pair, layer.feature)) for pair in layer.pairs]

    def look(module: Any, inputs: tuple[Tensor, ...]) -> None:
        q_NHLC, k_NHLC, _, bias_1HLL = inputs
        scores_NHLL = (q_NHLC * q_NHLC.shape[-1] ** -0.5) @ k_NHLC.mT + bias_1HLL
        for number, part in enumerate(scores_NHLL.softmax(-1).split(counts)):
            found[stage, number] += mean_attention_distance(part, distances[number]).flatten().tolist()

    return layer.attention.register_forward_pre_hook(look)


def summarise_attention(network: VeloxSeg, distances: Distances) -> list[dict[str, Any]]:
    """A row for each stage and window: mean, quartiles, and the test against the next larger window."""
    from scipy import stats

    rows = []
    for (stage, number), values in sorted(distances.items()):
        pair, tensor = network.config.pairs(stage)[number], torch.tensor(values, dtype=torch.float64)
        low, middle, high = tensor.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)).tolist()
        rows.append(
            {
                "stage": stage + 1,
                "window": list(pair.big),
                "small_window": list(pair.small),
                "count": len(values),
                "mean_mm": float(tensor.mean()),
                "quartiles_mm": [low, middle, high],
                "p_next": None,
            }
        )
    for (key, row), (other, _) in pairwise(zip(sorted(distances), rows, strict=True)):
        if key[0] == other[0]:
            row["p_next"] = float(stats.ranksums(distances[key], distances[other]).pvalue)
    return rows


def stars(p: float | None) -> str:
    """The mark of a p; none where nothing is tested.

    >>> stars(0.2), stars(0.05), stars(0.00005), stars(None)
    ('ns', '*', '****', '')
    """
    return "" if p is None else next((mark for most, mark in STARS if p <= most), "")


def draw_attention(methods: Sequence[tuple[str, VeloxSeg, Distances]]) -> bytes:
    """Box plots: a column for each stage, a line for each network."""
    import io

    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 0.6 + 3 * len(methods)), layout="constrained")
    grid = figure.subplots(len(methods), STAGES, squeeze=False)
    for line, (name, network, distances) in zip(grid, methods, strict=True):
        rows = summarise_attention(network, distances)
        for stage, axes in enumerate(line):
            keys = [key for key in sorted(distances) if key[0] == stage]
            axes.set_title(f"stage {stage + 1}", fontsize=9, pad=14)  # above the stars
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=8)
            if not keys:
                axes.text(0.5, 0.5, "no attention", ha="center", transform=axes.transAxes, fontsize=8)
                continue
            axes.boxplot([distances[key] for key in keys], widths=0.6, showfliers=False)
            most = max(axes.get_ylim()[1], LEAST_MM)
            axes.set_ylim(-0.03 * most, most)  # from 0, so that a small spread does not look large
            mine = [row for row in rows if row["stage"] == stage + 1]
            names = ["×".join(map(str, row["window"])) for row in mine]
            axes.set_xticks(range(1, len(keys) + 1), names)
            top = axes.get_ylim()[1]
            for place, row in enumerate(mine[:-1]):
                axes.text(place + 1.5, top, stars(row["p_next"]), ha="center", va="bottom", fontsize=9)
        line[0].set_ylabel(f"{name}\nmean attention distance, mm", fontsize=8)
    figure.supxlabel(
        f"big window (voxels of the stage)\nrank-sum test against the next larger window: {LEGEND}", fontsize=8
    )
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=140, metadata={"Software": None})
    return buffer.getvalue()
