"""DINOv3-L: a frozen 2-D vision transformer (Siméoni et al., 2025) on axial slices, and a linear head that is trained.

Every modality of every slice is an image for the backbone, enlarged `ENLARGED` times and repeated to three channels;
the head maps the features of all modalities at a place to its classes, and its logits are interpolated back to the
slice. Between slices nothing is exchanged. The paper does not say how it fed CT and PET; this is the plainest way.

The backbone is ViT-L/16 with rotary positions on patch tokens (none on class and register tokens), written anew, as
`transformers` would bring twenty packages for it; a test compares the two. Tensors have the names of the released file,
which `train --init` reads.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from veloxseg.errors import ModelError, shown
from veloxseg.peers.parts import check_patch
from veloxseg.peers.registry import FOUNDATION

__all__ = ["LARGE", "SliceProbe", "ViT", "Width", "build", "read_weights"]

# legend: B slices × modalities, T tokens, H heads, D width of a head, C width
PATCH, REGISTERS, THETA = 16, 4, 100.0
ENLARGED = 2  # a token then stands for 8 × 8 voxels of a slice
AT_ONCE = 16  # slices in the backbone at a time: memory


@dataclass(frozen=True, kw_only=True)
class Width:
    """The sizes of a vision transformer."""

    width: int
    heads: int
    depth: int


LARGE = Width(width=1024, heads=16, depth=24)


def build(in_channels: tuple[int, ...], classes: int, patch: tuple[int, int, int]) -> nn.Module:
    check_patch("dinov3-l", (patch[0], patch[1], PATCH), PATCH)
    return SliceProbe(LARGE, sum(in_channels), classes)


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The released backbone, from model.safetensors or its folder, by the names of `SliceProbe`."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path, source = Path(path), FOUNDATION["dinov3-l"].weights
    file = path / "model.safetensors" if path.is_dir() else path
    try:
        weights = load_file(file)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{shown(file)} is no file of weights ({shown(error, 80)}); get it from {source}") from error
    if "embeddings.register_tokens" not in weights:
        raise ModelError(f"{shown(file)} holds no weights of DINOv3's ViT; get them from {source}")
    return {f"backbone.{name}": tensor for name, tensor in weights.items()}


class SliceProbe(nn.Module):
    """(B, M, X, Y, Z) → (B, classes, X, Y, Z); only the head learns."""

    def __init__(self, size: Width, modalities: int, classes: int) -> None:
        super().__init__()
        self.backbone = ViT(size).requires_grad_(False)
        self.head = nn.Conv2d(modalities * size.width, classes, kernel_size=1)

    def forward(self, image_BMXYZ: Tensor) -> Tensor:
        batch, modalities, x, y, z = image_BMXYZ.shape
        slices = image_BMXYZ.permute(0, 4, 1, 2, 3).reshape(batch * z * modalities, 1, x, y)
        with torch.no_grad():
            features = torch.cat([self._features(part) for part in slices.split(AT_ONCE)])
        logits = self.head(features.reshape(batch * z, -1, *features.shape[2:]))
        logits = functional.interpolate(logits, size=(x, y), mode="bilinear", align_corners=False)
        return logits.reshape(batch, z, -1, x, y).permute(0, 2, 3, 4, 1)

    def _features(self, slices: Tensor) -> Tensor:
        larger = functional.interpolate(slices, scale_factor=ENLARGED, mode="bilinear", align_corners=False)
        return self.backbone(larger.expand(-1, 3, -1, -1))


class ViT(nn.Module):
    """(B, 3, X, Y) → (B, C, X/16, Y/16): the normalised patch tokens of the last layer."""

    def __init__(self, size: Width) -> None:
        super().__init__()
        self.head_width = size.width // size.heads
        self.embeddings = Embeddings(size.width)
        self.layer = nn.ModuleList(Layer(size) for _ in range(size.depth))
        self.norm = nn.LayerNorm(size.width, eps=1e-5)

    def forward(self, image: Tensor) -> Tensor:
        rows, columns = image.shape[2] // PATCH, image.shape[3] // PATCH
        tokens = self.embeddings(image)
        turns = rotations(rows, columns, self.head_width, image.device)
        for layer in self.layer:
            tokens = layer(tokens, turns)
        patches = self.norm(tokens)[:, 1 + REGISTERS :]
        return patches.transpose(1, 2).unflatten(2, (rows, columns))


class Embeddings(nn.Module):
    """Class token, registers, patches."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.mask_token = nn.Parameter(torch.zeros(1, 1, width))  # of pre-training; it is in the released file
        self.register_tokens = nn.Parameter(torch.zeros(1, REGISTERS, width))
        self.patch_embeddings = nn.Conv2d(3, width, kernel_size=PATCH, stride=PATCH)

    def forward(self, image: Tensor) -> Tensor:
        patches = self.patch_embeddings(image).flatten(2).transpose(1, 2)
        first = torch.cat([self.cls_token, self.register_tokens], dim=1).expand(len(image), -1, -1)
        return torch.cat([first, patches], dim=1)


class Layer(nn.Module):
    def __init__(self, size: Width) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(size.width, eps=1e-5), nn.LayerNorm(size.width, eps=1e-5)
        self.attention = Attention(size)
        self.layer_scale1, self.layer_scale2 = Scale(size.width), Scale(size.width)
        self.mlp = FeedForward(size.width)

    def forward(self, tokens_BTC: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        tokens_BTC = tokens_BTC + self.layer_scale1(self.attention(self.norm1(tokens_BTC), turns))
        return tokens_BTC + self.layer_scale2(self.mlp(self.norm2(tokens_BTC)))


class Attention(nn.Module):
    def __init__(self, size: Width) -> None:
        super().__init__()
        self.heads = size.heads
        self.q_proj, self.v_proj, self.o_proj = (nn.Linear(size.width, size.width) for _ in range(3))
        self.k_proj = nn.Linear(size.width, size.width, bias=False)

    def forward(self, tokens_BTC: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        q_BHTD, k_BHTD, v_BHTD = (
            project(tokens_BTC).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = functional.scaled_dot_product_attention(turned(q_BHTD, turns), turned(k_BHTD, turns), v_BHTD)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up_proj, self.down_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.down_proj(functional.gelu(self.up_proj(tokens)))


class Scale(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.lambda1 = nn.Parameter(torch.ones(width))

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens * self.lambda1


def rotations(rows: int, columns: int, head_width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every patch's angles, (T, D/2): a quarter of a head's width for each axis.

    Places run from −1 to 1 along each axis, whatever the image's size; frequencies fall from 1 to 1 / THETA.
    """
    places = [2 * (torch.arange(count, device=device) + 0.5) / count - 1 for count in (rows, columns)]
    grid = torch.cartesian_prod(*places).reshape(-1, 2, 1)
    frequencies = THETA ** -torch.arange(0, 1, 4 / head_width, device=device)
    angles = (2 * math.pi * grid * frequencies).flatten(1)
    return angles.cos(), angles.sin()


def turned(tokens_BHTD: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Turns the two halves of each patch token against each other; class and register tokens have no place."""
    cos, sin = turns
    first, patches = tokens_BHTD.split([tokens_BHTD.shape[2] - len(cos), len(cos)], dim=2)
    left, right = patches.chunk(2, dim=3)
    return torch.cat([first, torch.cat([left * cos - right * sin, right * cos + left * sin], dim=3)], dim=2)
