"""What several peers share: an instance norm whose gradient is right, windows, checks of a configuration.

PyTorch's instance norm on a CPU returns a wrong gradient for batch size 1 when the incoming gradient has its
channels last in memory, which the permutations around attention and scans bring about. Group norm with one
channel per group is the same function, and its gradient is right.
"""

import torch
from torch import Tensor, nn

from veloxseg.errors import ConfigError, ShapeError

__all__ = ["InstanceNorm", "check_channels", "check_patch", "cut_windows", "place_windows", "relative_offsets"]


class InstanceNorm(nn.InstanceNorm3d):
    """Instance norm over (B, C, X, Y, Z), eps 1e-5."""

    def forward(self, features: Tensor) -> Tensor:
        return torch.group_norm(features, self.num_features, self.weight, self.bias, self.eps)


def cut_windows(tokens_BXYZC: Tensor, window: tuple[int, int, int]) -> Tensor:
    """(B, X, Y, Z, C) to (B · windows, places, C); windows and places in row-major order."""
    batch, *grid, width = tokens_BXYZC.shape
    axes = [part for size, edge in zip(grid, window, strict=True) for part in (size // edge, edge)]
    cut = tokens_BXYZC.reshape(batch, *axes, width)  # (B, windows x, place x, windows y, place y, …, C)
    return cut.permute(0, 1, 3, 5, 2, 4, 6, 7).reshape(-1, window[0] * window[1] * window[2], width)


def place_windows(windows: Tensor, window: tuple[int, int, int], grid: tuple[int, int, int]) -> Tensor:
    """The inverse of `cut_windows`."""
    counts = [size // edge for size, edge in zip(grid, window, strict=True)]
    placed = windows.reshape(-1, *counts, *window, windows.shape[-1])
    return placed.permute(0, 1, 4, 2, 5, 3, 6, 7).reshape(-1, *grid, windows.shape[-1])


def relative_offsets(window: tuple[int, int, int]) -> Tensor:
    """(L, L) index into a table of Π(2·edge - 1) entries, by the offset between two places of the window."""
    places = torch.cartesian_prod(*(torch.arange(edge) for edge in window))  # (L, 3)
    index = torch.zeros(len(places), len(places), dtype=torch.long)
    for axis, edge in enumerate(window):
        offset = places[:, None, axis] - places[None, :, axis] + edge - 1
        index = index * (2 * edge - 1) + offset
    return index


def check_channels(name: str, in_channels: tuple[int, ...], classes: int) -> None:
    """Refuse a network without input or with nothing to tell apart."""
    if not in_channels or min(in_channels) < 1:
        raise ConfigError(f"{name}: in_channels is {in_channels}; give one positive number per modality")
    if classes < 2:
        raise ConfigError(f"{name}: classes is {classes}; give at least 2, the background included")


def check_patch(name: str, patch: tuple[int, int, int], multiple: int) -> None:
    """Refuse a patch that the network's strides do not divide, and name the next one that fits."""
    if any(size < multiple or size % multiple for size in patch):
        fitting = tuple(max(multiple, -(-size // multiple) * multiple) for size in patch)
        raise ShapeError(f"{name}: patch {tuple(patch)} is not divisible by {multiple}; use {fitting}")
