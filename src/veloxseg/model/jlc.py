"""JLC: grouped convolution whose groups are wide enough to keep points apart.

C_group >= c_JL · ε⁻² · log N(M, v)                                     (Eq. 2; see jl.py)
y = x + Σ_s GELU(IN(GroupConv_s(x))),   out = y + Dropout(PWC(GELU(PWC(IN(y)))))
"""

from torch import Tensor, nn
from torch.nn import functional as F

from veloxseg.kernels.feed_forward import feed_forward, has_feed_forward
from veloxseg.kernels.groups import group_branches, has_branches
from veloxseg.model.config import NetworkConfig
from veloxseg.model.layers import Conv3d, Dropout, InstanceNorm, channels_last

__all__ = ["JLC", "jlc_stage"]


class JLC(nn.Module):
    """One block: parallel group convolutions of several kernel sizes, then a feed-forward network."""

    def __init__(
        self, width: int, *, group_size: int, kernel_sizes: tuple[int, ...], hidden: int, dropout: float
    ) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            Conv3d(width, width, size, padding=size // 2, groups=width // group_size) for size in kernel_sizes
        )
        self.norm = InstanceNorm()
        self.expand = Conv3d(width, hidden, 1)
        self.reduce = Conv3d(hidden, width, 1)
        self.dropout = Dropout(dropout)

    def forward(self, x_BCXYZ: Tensor) -> Tensor:
        return self.feed_forward(self.branches(channels_last(x_BCXYZ)))

    def branches(self, x_BCXYZ: Tensor) -> Tensor:
        """y. In training by kernels of our own where they have such groups, in a quarter of the time."""
        convs = [conv for conv in self.convs if isinstance(conv, Conv3d)]
        if has_branches(x_BCXYZ, convs):
            return group_branches(x_BCXYZ, convs)
        y = x_BCXYZ
        for conv in self.convs:
            branch = conv(x_BCXYZ)
            # with a single kernel size the branch is the bare convolution
            y = y + (F.gelu(self.norm(branch)) if len(self.convs) > 1 else branch)
        return y

    def feed_forward(self, y_BCXYZ: Tensor) -> Tensor:
        """The block's output."""
        if has_feed_forward(y_BCXYZ, y_BCXYZ.shape[1], self.expand.out_channels):
            return feed_forward(y_BCXYZ, self.expand, self.reduce, self.dropout.rate if self.training else 0.0)
        hidden = F.gelu(self.expand(self.norm(y_BCXYZ)))
        return y_BCXYZ + self.dropout(self.reduce(hidden))


def jlc_stage(config: NetworkConfig, part: str, stage: int) -> nn.Sequential:
    """The blocks of a stage in a row; `part` is "encoder" or "decoder"."""
    return nn.Sequential(
        *(
            JLC(
                config.widths[stage],
                group_size=config.group_sizes[stage],
                kernel_sizes=config.kernel_sizes,
                hidden=config.hidden_width(part, stage, block),
                dropout=config.conv_dropout,
            )
            for block in range(config.depths[stage])
        )
    )
