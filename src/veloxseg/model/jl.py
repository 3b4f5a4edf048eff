"""How many channels a group needs: the Johnson–Lindenstrauss bound as code (Eq. 2 and its appendix).

    C_group >= c_JL · ε⁻² · log N(M, v),   N̂(M, v) = (M · v)^α

A feature voxel of a stage with volume ratio v must keep what v input voxels of each of M modalities say; the
manifold of such patches is covered by N̂ samples, and the lemma gives the dimensions that keep their distances
apart. The constant c_JL · ε⁻² is absorbed in α, so the bound reads C_group ≈ α · log(M · v).
"""

import math
from collections.abc import Sequence

__all__ = ["RATIOS_2D", "RATIOS_3D", "bound", "group_sizes", "table", "unit"]

RATIOS_3D = (4**3, 8**3, 16**3, 32**3)  # input voxels per feature voxel, stages 1 to 4
RATIOS_2D = (1**2, 2**2, 4**2, 8**2)  # the usual stages of a natural-image network


def bound(modalities: int, volume_ratio: float, alpha: float = 1.0) -> float:
    """The lower bound of the group size, in channels: α · log(M · v).

    >>> round(bound(2, 4**3), 1)
    4.9
    """
    return alpha * math.log(modalities * volume_ratio)


def table(modalities: int, ratios: Sequence[int] = RATIOS_3D) -> tuple[float, ...]:
    """The bound of each stage in units of α, as the paper's appendix prints it.

    >>> table(2)
    (4.9, 6.9, 9.0, 11.1)
    """
    return tuple(round(bound(modalities, ratio), 1) for ratio in ratios)


def group_sizes(modalities: int = 4, ratios: Sequence[int] = RATIOS_3D, alpha: float = 1.0) -> tuple[int, ...]:
    """The bound of each stage as the nearest power of two on a logarithmic scale, so that it divides the width.

    One setting is to serve M = 1, 2 and 4, so the default is the most demanding of them. With α = 1 this is the
    paper's choice in 3-D, and its recommendation for natural images (M = 3 colours), close to depth-wise.

    >>> group_sizes()
    (4, 8, 8, 16)
    >>> group_sizes(3, RATIOS_2D)
    (1, 2, 4, 4)
    """
    return tuple(2 ** round(math.log2(max(1.0, bound(modalities, ratio, alpha)))) for ratio in ratios)


def unit(alpha: float = 1.0) -> int:
    """n of the paper's final group sizes (n, 2n, 2n, 4n), which it also writes as (4α, 8α, 8α, 16α): n = 4α.

    α is the difficulty of the data. The paper sets it on AutoPET-II, its hardest set, where the ablation with
    kernel 3 is best at n = 4, so α = 1. (Its appendix prints n = ⌈α/4⌉, which contradicts the line before.)

    >>> unit()
    4
    """
    return group_sizes(alpha=alpha)[0]
