"""SAM-Med3D (Wang et al., TNNLS 2025): a 3-D vision transformer, an encoder of clicks, and a decoder of masks.

    image 128³ ─ patches of 16³ → 12 layers (768 wide) → neck → (384, 8³) ┐
    clicks, mask of the last click ─────────────── prompt encoder ────────┴→ two-way transformer → logits, 32³

Layers 3, 6, 9 and 12 attend to all tokens, the others within windows of 14³: as there are but 8³ tokens, that is one
window with 14³ − 8³ empty places, whose keys are the bias. Written anew; tensors have the names of the released file.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["BASE", "SamMed3D", "Sizes"]

# legend: B batch, T tokens (image places in row-major order, or prompts), H heads, D width of a head, C width


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The defaults are those of the release (ViT-B)."""

    image: int = 128
    patch: int = 16
    width: int = 768
    depth: int = 12
    heads: int = 12
    window: int = 14
    everywhere: tuple[int, ...] = (2, 5, 8, 11)  # layers without windows
    prompt: int = 384
    prompt_heads: int = 8
    hidden: int = 2048  # of the two-way transformer

    @property
    def grid(self) -> int:
        return self.image // self.patch


BASE = Sizes()


class SamMed3D(nn.Module):
    """`embed` an image once, then `decode` clicks on it."""

    def __init__(self, sizes: Sizes = BASE) -> None:
        super().__init__()
        self.sizes = sizes
        self.image_encoder = ImageEncoder(sizes)
        self.prompt_encoder = PromptEncoder(sizes)
        self.mask_decoder = MaskDecoder(sizes)

    def embed(self, image_B1XYZ: Tensor) -> Tensor:
        return self.image_encoder(image_B1XYZ)

    def decode(self, embedding: Tensor, points_BT3: Tensor, positive_BT: Tensor, logits: Tensor) -> Tensor:
        """Logits at a quarter of the resolution, (B, 1, …), from clicks (in voxels) and the logits before them."""
        prompts_BTC = self.prompt_encoder.points(points_BT3, positive_BT)
        dense = self.prompt_encoder.mask_downscaling(logits)
        return self.mask_decoder(embedding + dense, self.prompt_encoder.places(), prompts_BTC)


# -- image -----------------------------------------------------------------------------------------------------------


class ChannelNorm(nn.Module):
    """Layer norm over the channels of (B, C, X, Y, Z)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, features: Tensor) -> Tensor:
        last = features.movedim(1, -1)
        return functional.layer_norm(last, self.weight.shape, self.weight, self.bias, 1e-6).movedim(-1, 1)


class PatchEmbedding(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.proj = nn.Conv3d(1, sizes.width, kernel_size=sizes.patch, stride=sizes.patch)

    def forward(self, image: Tensor) -> Tensor:
        return self.proj(image).movedim(1, -1)


class ImageEncoder(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.patch_embed = PatchEmbedding(sizes)
        self.pos_embed = nn.Parameter(torch.zeros(1, sizes.grid, sizes.grid, sizes.grid, sizes.width))
        self.blocks = nn.ModuleList(
            Block(sizes, sizes.grid if layer in sizes.everywhere else sizes.window) for layer in range(sizes.depth)
        )
        self.neck = nn.Sequential(
            nn.Conv3d(sizes.width, sizes.prompt, kernel_size=1, bias=False),
            ChannelNorm(sizes.prompt),
            nn.Conv3d(sizes.prompt, sizes.prompt, kernel_size=3, padding=1, bias=False),
            ChannelNorm(sizes.prompt),
        )

    def forward(self, image: Tensor) -> Tensor:
        tokens_BXYZC = self.patch_embed(image) + self.pos_embed
        for block in self.blocks:
            tokens_BXYZC = block(tokens_BXYZC)
        return self.neck(tokens_BXYZC.movedim(-1, 1))


class Block(nn.Module):
    def __init__(self, sizes: Sizes, window: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(sizes.width, eps=1e-6), nn.LayerNorm(sizes.width, eps=1e-6)
        self.attn = WindowAttention(sizes, window)
        self.mlp = FeedForward(sizes.width, 4 * sizes.width, nn.GELU())

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attn(self.norm1(tokens))
        return tokens + self.mlp(self.norm2(tokens))


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int, activation: nn.Module) -> None:
        super().__init__()
        self.lin1, self.lin2, self.act = nn.Linear(width, hidden), nn.Linear(hidden, width), activation

    def forward(self, tokens: Tensor) -> Tensor:
        return self.lin2(self.act(self.lin1(tokens)))


class WindowAttention(nn.Module):
    """Attention within one window, which is at least as large as the image; what is beyond the image is zero.

    Scores get q · r, with r by the offset between two places along each axis. The release adds these terms along other
    axes than the names say (`_bias`). Its weights were trained so, and mean nothing in another order.
    """

    def __init__(self, sizes: Sizes, window: int) -> None:
        super().__init__()
        self.heads, self.window = sizes.heads, max(window, sizes.grid)
        self.qkv, self.proj = nn.Linear(sizes.width, 3 * sizes.width), nn.Linear(sizes.width, sizes.width)
        offsets, width = 2 * self.window - 1, sizes.width // sizes.heads
        self.rel_pos_d, self.rel_pos_h, self.rel_pos_w = (nn.Parameter(torch.zeros(offsets, width)) for _ in range(3))

    def forward(self, tokens_BXYZC: Tensor) -> Tensor:
        batch, grid = len(tokens_BXYZC), tokens_BXYZC.shape[1]
        empty = self.window - grid
        padded = functional.pad(tokens_BXYZC, (0, 0, 0, empty, 0, empty, 0, empty))
        q, k, v = self.qkv(padded).unflatten(-1, (3, self.heads, -1)).unbind(-3)  # (B, X, Y, Z, H, D) each
        bias = self._bias(q[:, :grid, :grid], grid)
        q = q[:, :grid, :grid, :grid]  # empty places are keys, but nobody looks at what they see
        q, k, v = (part.flatten(1, 3).transpose(1, 2) for part in (q, k, v))  # (B, H, T, D)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.proj(mixed.transpose(1, 2).reshape(batch, grid, grid, grid, -1))

    def _bias(self, q_BXYZHD: Tensor, grid: int) -> Tensor:
        """(B, H, queries, keys). Queries are at x, y, z and keys at i, j, k; all three terms run along k.

        The second takes the query at (x, y, i), the third that at (x, y, j).
        """
        places = torch.arange(self.window, device=q_BXYZHD.device)
        r_d, r_h, r_w = (
            table[places[:, None] - places[None, :] + self.window - 1]
            for table in (self.rel_pos_d, self.rel_pos_h, self.rel_pos_w)
        )
        first = torch.einsum("bxyzhd,xkd->bhxyzk", q_BXYZHD[:, :, :, :grid], r_d[:grid])[..., None, None, :]
        second = torch.einsum("bxyihd,ykd->bhxyik", q_BXYZHD, r_h[:grid])[:, :, :, :, None, :, None, :]
        third = torch.einsum("bxyjhd,jkd->bhxyjk", q_BXYZHD, r_w)[:, :, :, :, None, None, :, :]
        return (first + second + third).flatten(5, 7).flatten(2, 4)


# -- prompts ---------------------------------------------------------------------------------------------------------


class Frequencies(nn.Module):
    """Random Fourier features of a place, whose frequencies are part of the release."""

    positional_encoding_gaussian_matrix: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("positional_encoding_gaussian_matrix", torch.randn(3, width // 3))

    def forward(self, places: Tensor) -> Tensor:
        """Places from 0 to 1, (…, 3) → (…, C). The sine stands twice: two functions do not divide by three axes."""
        angles = 2 * math.pi * ((2 * places - 1) @ self.positional_encoding_gaussian_matrix)
        return torch.cat([angles.sin(), angles.cos(), angles.sin()], dim=-1)


class PromptEncoder(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.pe_layer = Frequencies(sizes.prompt)
        self.point_embeddings = nn.ModuleList(nn.Embedding(1, sizes.prompt) for _ in range(2))  # negative, positive
        self.not_a_point_embed, self.no_mask_embed = nn.Embedding(1, sizes.prompt), nn.Embedding(1, sizes.prompt)
        self.mask_downscaling = nn.Sequential(
            nn.Conv3d(1, 4, kernel_size=2, stride=2),
            ChannelNorm(4),
            nn.GELU(),
            nn.Conv3d(4, 16, kernel_size=2, stride=2),
            ChannelNorm(16),
            nn.GELU(),
            nn.Conv3d(16, sizes.prompt, kernel_size=1),
        )

    def points(self, points_BT3: Tensor, positive_BT: Tensor) -> Tensor:
        """Clicks in voxels as prompts, and one prompt that is no point, as in training."""
        negative, positive = (embedding.get_parameter("weight") for embedding in self.point_embeddings)
        kinds = torch.cat([negative, positive])
        clicks = self.pe_layer((points_BT3 + 0.5) / self.sizes.image) + kinds[positive_BT.long()]
        return torch.cat([clicks, self.not_a_point_embed.weight.expand(len(clicks), 1, -1)], dim=1)

    def places(self) -> Tensor:
        """The encoding of every image place, (1, C, X, Y, Z).

        The release swaps the first two axes here, and not for clicks; its weights were trained so.
        """
        like = self.no_mask_embed.weight
        line = (torch.arange(self.sizes.grid, dtype=like.dtype, device=like.device) + 0.5) / self.sizes.grid
        x, y, z = torch.meshgrid(line, line, line, indexing="ij")
        return self.pe_layer(torch.stack([y, x, z], dim=-1)).movedim(-1, 0)[None]


# -- masks -----------------------------------------------------------------------------------------------------------


class MaskDecoder(nn.Module):
    """One mask, by the first of four mask tokens; the others, and the token of quality, are for a choice of three."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.prompt
        self.transformer = TwoWayTransformer(sizes)
        self.iou_token, self.mask_tokens = nn.Embedding(1, width), nn.Embedding(4, width)
        self.output_upscaling = nn.Sequential(
            nn.ConvTranspose3d(width, width // 4, kernel_size=2, stride=2),
            ChannelNorm(width // 4),
            nn.GELU(),
            nn.ConvTranspose3d(width // 4, width // 8, kernel_size=2, stride=2),
            nn.GELU(),
        )
        self.output_hypernetworks_mlps = nn.ModuleList(Perceptron(width, width, width // 8) for _ in range(4))
        self.iou_prediction_head = Perceptron(width, 256, 4)

    def forward(self, image_BCXYZ: Tensor, places_1CXYZ: Tensor, prompts_BTC: Tensor) -> Tensor:
        own = torch.cat([self.iou_token.weight, self.mask_tokens.weight]).expand(len(prompts_BTC), -1, -1)
        image_BTC, places_BTC = (part.flatten(2).transpose(1, 2) for part in (image_BCXYZ, places_1CXYZ))
        tokens_BTC, image_BTC = self.transformer(torch.cat([own, prompts_BTC], dim=1), image_BTC, places_BTC)
        features = self.output_upscaling(image_BTC.transpose(1, 2).unflatten(2, image_BCXYZ.shape[2:]))
        weights_BC = self.output_hypernetworks_mlps[0](tokens_BTC[:, 1])
        return torch.einsum("bc,bcxyz->bxyz", weights_BC, features)[:, None]


class Perceptron(nn.Module):
    """Three layers."""

    def __init__(self, width: int, hidden: int, out: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, out)])

    def forward(self, tokens: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            tokens = layer(tokens).relu()
        return self.layers[-1](tokens)


class TwoWayTransformer(nn.Module):
    """Prompts look at the image and the image at prompts, twice; then prompts once more."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TwoWayBlock(sizes, first=layer == 0) for layer in range(2))
        self.final_attn_token_to_image = CrossAttention(sizes, sizes.prompt // 2)
        self.norm_final_attn = nn.LayerNorm(sizes.prompt)

    def forward(self, prompts: Tensor, image: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        tokens = prompts
        for layer in self.layers:
            tokens, image = layer(tokens, image, prompts, places)
        seen = self.final_attn_token_to_image(tokens + prompts, image + places, image)
        return self.norm_final_attn(tokens + seen), image


class TwoWayBlock(nn.Module):
    """`first`: the prompts are their own places, so self-attention neither adds them nor keeps what was there."""

    def __init__(self, sizes: Sizes, *, first: bool) -> None:
        super().__init__()
        width = sizes.prompt
        self.first = first
        self.self_attn = CrossAttention(sizes, width)
        self.cross_attn_token_to_image = CrossAttention(sizes, width // 2)
        self.cross_attn_image_to_token = CrossAttention(sizes, width // 2)
        self.mlp = FeedForward(width, sizes.hidden, nn.ReLU())
        self.norm1, self.norm2, self.norm3, self.norm4 = (nn.LayerNorm(width) for _ in range(4))

    def forward(self, tokens: Tensor, image: Tensor, prompts: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        if self.first:
            tokens = self.norm1(self.self_attn(tokens, tokens, tokens))
        else:
            placed = tokens + prompts
            tokens = self.norm1(tokens + self.self_attn(placed, placed, tokens))
        tokens = self.norm2(tokens + self.cross_attn_token_to_image(tokens + prompts, image + places, image))
        tokens = self.norm3(tokens + self.mlp(tokens))
        image = self.norm4(image + self.cross_attn_image_to_token(image + places, tokens + prompts, tokens))
        return tokens, image


class CrossAttention(nn.Module):
    def __init__(self, sizes: Sizes, inner: int) -> None:
        super().__init__()
        self.heads = sizes.prompt_heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(sizes.prompt, inner) for _ in range(3))
        self.out_proj = nn.Linear(inner, sizes.prompt)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        q, k, v = (
            project(tokens).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for project, tokens in ((self.q_proj, queries), (self.k_proj, keys), (self.v_proj, values))
        )
        return self.out_proj(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
