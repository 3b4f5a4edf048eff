"""What several peers share: an instance norm whose gradient is right, and the checks of a configuration.

PyTorch's instance norm on a CPU returns a wrong gradient for batch size 1 when the incoming gradient has its
channels last in memory, which the permutations around attention and scans bring about. Group norm with one
channel per group is the same function, and its gradient is right.
"""

from torch import Tensor, nn
from torch.nn import functional

from veloxseg.errors import ConfigError, ShapeError

__all__ = ["InstanceNorm", "check_channels", "check_patch"]


class InstanceNorm(nn.InstanceNorm3d):
    """Instance norm over (B, C, X, Y, Z), eps 1e-5."""

    def forward(self, features: Tensor) -> Tensor:
        return functional.group_norm(features, self.num_features, self.weight, self.bias, self.eps)


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
