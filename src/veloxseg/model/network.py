"""VeloxSeg: images to logits, always.

J. Lu, L. Cai, Y. Chen, G. Tang, S. Jiang, H. Shi, Z. Xiong: "Johnson-Lindenstrauss Lemma Guided Network for
Efficient 3D Medical Segmentation", ICLR 2026. What training needs more (deep outputs, reconstructions, Gram
matrices) is in sdkt.py, around this network: at inference there is nothing of it.
"""

from torch import Tensor, nn

from veloxseg.errors import ShapeError
from veloxseg.model.config import NetworkConfig
from veloxseg.model.decoder import Decoder, voxel_head
from veloxseg.model.encoder import DualEncoder, Features
from veloxseg.model.layers import Conv3d, initialise

__all__ = ["VeloxSeg"]


class VeloxSeg(nn.Module):
    """(B, sum(in_channels), *patch) → (B, classes, *patch)

    >>> net = VeloxSeg(preset("b"))
    >>> net(torch.zeros(1, 2, 96, 96, 96)).shape
    torch.Size([1, 2, 96, 96, 96])
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = DualEncoder(config)
        self.decoder = Decoder(config)
        self.head = voxel_head(config, config.classes)
        # deep supervision on u_2, u_3, u_4: used in training, kept with the weights as the authors do
        self.deep_heads = nn.ModuleList(Conv3d(width, config.classes, 1) for width in config.widths[1:])
        initialise(self)

    def forward(self, image_BCXYZ: Tensor) -> Tensor:
        self.check(image_BCXYZ)
        decoded = self.decode(self.encoder(image_BCXYZ))
        return self.head(decoded[0])

    def decode(self, features: list[Features]) -> list[Tensor]:
        """Decoded features u_1..u_4, finest first."""
        return self.decoder([stage.fused for stage in features])

    def check(self, image_BCXYZ: Tensor) -> None:
        expected = (sum(self.config.in_channels), *self.config.patch)
        if tuple(image_BCXYZ.shape[1:]) != expected:
            found = tuple(image_BCXYZ.shape)
            raise ShapeError(
                f"input {found} does not fit the network; it takes (batch, {', '.join(map(str, expected))})"
            )
