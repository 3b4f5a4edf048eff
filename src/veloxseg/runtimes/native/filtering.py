"""Minimal filtering (Winograd): convolutions along an axis with fewer products than taps times outputs.

F(2, r) gives two neighbouring outputs of a kernel with r taps from r + 1 products, in place of 2 r:
out = A' [(G w) . (B' d)], where . is taken element by element. G is here; B' and A' are in head.c and groups.c.
With 3 taps the points of evaluation are 0, 1, -1 and infinity, with 5 also 2 and -2.

Weights are transformed in double precision. In single precision the sums that follow have an error of once (3 taps)
and one and a half times (5 taps) that of the plain sum.

Legend: K output, C channel, XYZ space, P point.
"""

import numpy as np
import numpy.typing as npt

from veloxseg.types import Floats

__all__ = ["TAPS", "filtered_y", "filtered_yz"]


def _matrix(points: tuple[int, ...], divisors: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """(points, taps): each row evaluates the kernel as a polynomial; the last one takes its highest coefficient."""
    taps = len(points)
    rows = np.array([[float(point) ** tap for tap in range(taps)] for point in points]) / np.array(divisors)[:, None]
    return np.vstack([rows, np.eye(taps)[-1]])


TAPS = {3: _matrix((0, 1, -1), (1, 2, 2)), 5: _matrix((0, 1, -1, 2, -2), (4, 6, 6, 24, 24))}


def filtered_y(weight_KCXYZ: Floats) -> Floats:
    """(P, K, C, X, Z), in place of the taps along y."""
    matrix = TAPS[weight_KCXYZ.shape[3]]
    return np.einsum("py,kcxyz->pkcxz", matrix, weight_KCXYZ).astype(np.float32)


def filtered_yz(weight_KCXYZ: Floats) -> Floats:
    """(P·P, K, C, X), in place of the taps along y and z."""
    y, z = (TAPS[taps] for taps in weight_KCXYZ.shape[3:])
    return np.einsum("py,qz,kcxyz->pqkcx", y, z, weight_KCXYZ).astype(np.float32).reshape(-1, *weight_KCXYZ.shape[:3])
