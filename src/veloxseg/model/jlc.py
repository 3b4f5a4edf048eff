"""JLC: grouped convolution whose groups are wide enough to keep points apart.

C_group >= c_JL · ε⁻² · log N(M, v)                                     (Eq. 2; see jl.py)
y = x + Σ_s GELU(IN(GroupConv_s(x))),   out = y + Dropout(PWC(GELU(PWC(IN(y)))))
"""

from torch import Tensor, nn
from torch.nn import functional as F

from veloxseg.model.layers import Conv3d, Dropout, InstanceNorm, channels_last

__all__ = ["JLC", "jlc_stage"]


class JLC(nn.Module):
    """One block: parallel group convolutions of several kernel sizes, then a feed-forward network."""

    def __init__(
        self, width: int, *, group_size: int, kernel_sizes: tuple[int, ...], expansion: int, dropout: float
    ) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            Conv3d(width, width, size, padding=size // 2, groups=width // group_size) for size in kernel_sizes
        )
        self.norm = InstanceNorm()
        self.expand = Conv3d(width, expansion * width, 1)
        self.reduce = Conv3d(expansion * width, width, 1)
        self.dropout = Dropout(dropout)

    def forward(self, x_BCXYZ: Tensor) -> Tensor:
        x = y = channels_last(x_BCXYZ)
        for conv in self.convs:
            branch = conv(x)
            # with a single kernel size the branch is the bare convolution
            y = y + (F.gelu(self.norm(branch)) if len(self.convs) > 1 else branch)
        hidden = F.gelu(self.expand(self.norm(y)))
        return y + self.dropout(self.reduce(hidden))


def jlc_stage(depth: int, width: int, **settings: object) -> nn.Sequential:
    """`depth` blocks in a row."""
    return nn.Sequential(*(JLC(width, **settings) for _ in range(depth)))  # type: ignore[arg-type]
