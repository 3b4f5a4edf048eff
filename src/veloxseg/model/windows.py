"""Paired windows: gather a volume into token sequences of equal length at several scales, and scatter them back.

Pair i has a big window B_i, in which attention runs, and a small window S_i, of which the maximum is one token;
both double from pair to pair, so every pair has the same L = Π(B/S) tokens and all scales share one attention.

Legend: M modality, B batch, W window, L token of a window, C channel, XYZ space.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from veloxseg.model.config import PairedWindow
from veloxseg.types import Size

__all__ = ["gather", "scatter", "upsampling_matrix", "window_count"]


def window_count(pair: PairedWindow, feature: Size) -> Size:
    """Big windows along each axis."""
    x, y, z = (f // b for f, b in zip(feature, pair.big, strict=True))
    return x, y, z


def gather(x_MBXYZC: Tensor, pair: PairedWindow) -> Tensor:
    """One scale: (M, B, X, Y, Z, C) → (B, W, M·L, C). Pools the whole volume, then cuts it: windows are aligned."""
    modalities, batch, channels = x_MBXYZC.shape[0], x_MBXYZC.shape[1], x_MBXYZC.shape[-1]
    if max(pair.small) > 1:
        x_NCXYZ = x_MBXYZC.flatten(0, 1).movedim(-1, 1)
        x_MBXYZC = F.max_pool3d(x_NCXYZ, pair.small).movedim(1, -1).unflatten(0, (modalities, batch))
    lx, ly, lz = pair.tokens
    nx, ny, nz = (side // tokens for side, tokens in zip(x_MBXYZC.shape[2:5], pair.tokens, strict=True))
    cut = x_MBXYZC.reshape(modalities, batch, nx, lx, ny, ly, nz, lz, channels)
    #   M B nx lx ny ly nz lz C  →  B nx ny nz M lx ly lz C
    return cut.permute(1, 2, 4, 6, 0, 3, 5, 7, 8).reshape(batch, nx * ny * nz, modalities * lx * ly * lz, channels)


def scatter(x_BWMLC: Tensor, pair: PairedWindow, feature: Size, upsampling_SL: Tensor | None) -> Tensor:
    """The way back of one scale: (B, W, M, L, C) → (M, B, X, Y, Z, C), tokens up-sampled within their window."""
    batch, _, modalities, _, channels = x_BWMLC.shape
    nx, ny, nz = window_count(pair, feature)
    bx, by, bz = pair.big
    if max(pair.small) > 1:
        tokens_BWMCL = x_BWMLC.mT
        if upsampling_SL is not None:
            big_BWMCS = tokens_BWMCL @ upsampling_SL.mT
        else:
            flat = tokens_BWMCL.reshape(-1, channels, *pair.tokens)
            big_BWMCS = F.interpolate(flat, size=pair.big, mode="trilinear", align_corners=True)
        big = big_BWMCS.reshape(batch, nx, ny, nz, modalities, channels, bx, by, bz)
        #   B nx ny nz M C bx by bz  →  M B nx bx ny by nz bz C
        ordered = big.permute(4, 0, 1, 6, 2, 7, 3, 8, 5)
    else:
        big = x_BWMLC.reshape(batch, nx, ny, nz, modalities, bx, by, bz, channels)
        #   B nx ny nz M bx by bz C  →  M B nx bx ny by nz bz C
        ordered = big.permute(4, 0, 1, 5, 2, 6, 3, 7, 8)
    return ordered.reshape(modalities, batch, *feature, channels)


def upsampling_matrix(pair: PairedWindow) -> Tensor:
    """Trilinear interpolation with aligned corners from a window's L tokens to its voxels, as a matrix.

    It is linear and the same for every window, so one matrix product replaces thousands of tiny interpolations.
    """
    tokens = pair.tokens
    count = tokens[0] * tokens[1] * tokens[2]
    basis = torch.eye(count).reshape(count, 1, *tokens)
    return F.interpolate(basis, size=pair.big, mode="trilinear", align_corners=True).reshape(count, -1).mT.contiguous()
