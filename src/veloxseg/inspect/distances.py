"""The Johnson–Lindenstrauss argument, measured: how much a group's convolution distorts distances between voxels.

A voxel of a stage is a point: its neighbourhood in all channels, R^(C·k³). One group of a convolution maps it to g
numbers. Over pairs of points the ratio r = |f(x) - f(y)| / |x - y| would be one constant if distances were kept, and

    distortion ε = 95th percentile of |r / median(r) - 1|

is how far it is from that: 0 for a layer that hands its input on. It is taken for random weights, as in the lemma, with
groups from 1 channel to all of them, and for the trained layer, and stands beside the bound α·log(M·v) (Eq. 2, jl.py).
The paper argues with these distances and does not measure them.

Legend: N point, C channel, G channel of a group, K voxel of a kernel.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from veloxseg.model.config import STAGES
from veloxseg.model.jl import RATIOS_3D, bound
from veloxseg.model.network import VeloxSeg

__all__ = ["distortion", "group_distortion", "measure_distances", "stage_points"]

POINTS = 400  # of each stage: 80,000 pairs
DRAWS = 4  # of random weights for each group size
COLOURS = ("#0072B2", "#D55E00", "#009E73")
STYLES = ("o-", "s--", "^:")  # networks with the same features lie on each other
LEAST = 1e-9  # pairs of equal points have no ratio


def distortion(before_ND: Tensor, after_ND: Tensor) -> float:
    """ε of a map that takes the rows of `before` to those of `after`."""
    before, after = (torch.pdist(points.double()) for points in (before_ND, after_ND))
    apart = before > LEAST * before.max().clamp_min(LEAST)
    ratio = after[apart] / before[apart]
    middle = ratio.median()
    if not len(ratio) or middle <= 0:
        return math.inf  # at least half of the pairs fell together
    return float((ratio / middle - 1).abs().quantile(0.95))


def group_distortion(points_NCK: Tensor, weight_OGK: Tensor) -> float:
    """Mean ε over the groups of a convolution with these weights; O are the outputs of all groups."""
    outputs, size, _ = weight_OGK.shape
    groups = points_NCK.shape[1] // size
    each = outputs // groups
    values = [
        distortion(
            points_NCK.flatten(1),
            torch.einsum(
                "ngk,ogk->no", points_NCK[:, g * size : (g + 1) * size], weight_OGK[g * each : (g + 1) * each]
            ),
        )
        for g in range(groups)
    ]
    return sum(values) / len(values)


def stage_points(network: VeloxSeg, images: Iterable[Tensor], points: int = POINTS, seed: int = 0) -> list[Tensor]:
    """For each stage (N, C, K): neighbourhoods of random voxels of what enters its first JLC block."""
    found: list[list[Tensor]] = [[] for _ in range(STAGES)]
    side, random = kernel_of(network), torch.Generator().manual_seed(seed)
    hooks = [
        stage.blocks[0].register_forward_pre_hook(  # type: ignore[index, union-attr]
            lambda module, inputs, k=k: found[k].append(inputs[0].detach())
        )
        for k, stage in enumerate(network.encoder.stages)
    ]
    try:
        with torch.no_grad():
            for image in images:
                network(image)
    finally:
        for hook in hooks:
            hook.remove()
    return [_sample(features, side, points, random) for features in found]


def kernel_of(network: VeloxSeg) -> int:
    """The kernel that is looked at: 3 if the network has it, else its smallest that sees neighbours."""
    sizes = network.config.kernel_sizes
    return 3 if 3 in sizes else min((size for size in sizes if size > 1), default=sizes[0])


def _sample(features: Sequence[Tensor], side: int, points: int, random: torch.Generator) -> Tensor:
    each = -(-points // max(1, len(features)))
    parts = []
    for feature_1CXYZ in features:
        padded = F.pad(feature_1CXYZ[0].float(), (side // 2,) * 6)
        patches_CXYZabc = padded.unfold(1, side, 1).unfold(2, side, 1).unfold(3, side, 1)
        flat_NCK = patches_CXYZabc.flatten(1, 3).flatten(2).movedim(0, 1)
        chosen = torch.randperm(len(flat_NCK), generator=random)[:each]
        parts.append(flat_NCK[chosen])
    return torch.cat(parts)[:points]


def measure_distances(network: VeloxSeg, images: Iterable[Tensor], seed: int = 0) -> list[dict[str, Any]]:
    """For each stage: ε of random groups of every size, of the trained ones, and the bound."""
    config, rows = network.config, []
    modalities, random = sum(config.in_channels), torch.Generator().manual_seed(seed)
    index = config.kernel_sizes.index(kernel_of(network))
    for stage, points in enumerate(stage_points(network, images, seed=seed)):
        width, kernel = points.shape[1:]
        by_size = {}
        for size in (s for s in range(1, width + 1) if width % s == 0 and (s & (s - 1) == 0 or s == width)):
            draws = [torch.randn(width, size, kernel, generator=random) for _ in range(DRAWS)]
            by_size[size] = sum(group_distortion(points, weight) for weight in draws) / DRAWS
        conv = network.encoder.stages[stage].blocks[0].convs[index]  # type: ignore[index, union-attr]
        trained: Tensor = conv.weight.detach().flatten(2)
        rows.append(
            {
                "stage": stage + 1,
                "points": len(points),
                "bound": bound(modalities, RATIOS_3D[stage]),
                "group_size": config.group_sizes[stage],
                "random": {str(size): _finite(value) for size, value in by_size.items()},
                "trained": _finite(group_distortion(points, trained)),
            }
        )
    return rows


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def draw_distances(methods: Sequence[tuple[str, list[dict[str, Any]]]]) -> bytes:
    """ε against the group size, a panel for each stage; the bound and the trained layers are marked."""
    import io

    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.7), layout="constrained")
    panels = figure.subplots(1, STAGES, sharey=True)
    for axes, *rows in zip(panels, *(rows for _, rows in methods), strict=True):
        _draw_stage(axes, [name for name, _ in methods], rows)
    panels[0].set_ylabel("distortion ε of distances (95 % of pairs)", fontsize=8)
    panels[0].set_ylim(bottom=0)
    # below the panels, and of all of them: a small stage may have no distances to measure
    handles = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=140, metadata={"Software": None})
    return buffer.getvalue()


def _draw_stage(axes: Any, names: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """One stage of every network."""
    measured = []
    for number, (name, row) in enumerate(zip(names, rows, strict=True)):
        colour, style = COLOURS[number % len(COLOURS)], STYLES[number % len(STYLES)]
        sizes = {int(size): value for size, value in row["random"].items() if value is not None}
        measured += list(sizes)
        if sizes:
            axes.plot(
                *zip(*sizes.items(), strict=True), style, ms=3, lw=1, color=colour, label=f"{name}, random weights"
            )
        if row["trained"] is not None:
            axes.scatter(row["group_size"], row["trained"], marker="*", s=90, color=colour, label=f"{name}, trained")
    axes.set_title(f"stage {rows[0]['stage']}", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("channels of a group", fontsize=8)
    if not measured:
        axes.text(0.5, 0.5, "no two voxels differ", ha="center", transform=axes.transAxes, fontsize=8)
        axes.set_xticks([])
        return
    axes.axvline(rows[0]["bound"], color="#777777", ls=":", lw=1, label="bound log(M·v), α = 1")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(set(measured)), [str(size) for size in sorted(set(measured))])
    axes.minorticks_off()
    axes.grid(alpha=0.25)
