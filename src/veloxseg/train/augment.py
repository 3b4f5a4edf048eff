"""Augmentation: `draw` decides by chance, `apply` does it; the second is a pure function that can be tested.

The default is the paper's recipe, a flip along z with probability 0.5. `STRONG` adds flips in plane, rotations
about z, and changes of brightness, contrast, gamma and noise, `ZOOM` other sizes. All are cheap: a turn about z and a
zoom in plane move every slice alike, so their interpolation is one sparse matrix over a slice.

`transplant` mixes two patches: lesions of one patient, with some of what is around them, in the place of what another
one has there (CarveMix, X. Zhang et al., MICCAI 2021). Thirty patients so become some nine hundred.
"""

from dataclasses import dataclass

import numpy as np
import torch

from veloxseg.types import Floats, Labels

__all__ = ["PAPER", "STRONG", "Augmentation", "Change", "apply", "draw", "read_size", "transplant"]


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Probabilities and ranges."""

    flip: tuple[float, float, float] = (0.0, 0.0, 0.5)  # probability along x, y, z
    rotation: float = 0.0  # probability of a turn about z ...
    degrees: float = 15.0  # ... by up to this angle
    zoom: float = 0.0  # probability of another size ...
    scale: float = 0.25  # ... by a factor from 1 / (1 + this) to 1 + this, in plane and along z apart
    intensity: float = 0.0  # probability, per modality, of each of the changes below
    brightness: float = 0.2  # up to this is added, in standard deviations
    contrast: float = 0.2  # the factor is 1 ± this
    gamma: float = 0.3  # the exponent on the patch's range goes from 1 / (1 + this) to 1 + this
    noise: float = 0.1  # the standard deviation of Gaussian noise goes up to this


PAPER = Augmentation()
STRONG = Augmentation(flip=(0.5, 0.5, 0.5), rotation=0.3, intensity=0.15)
ZOOM = Augmentation(flip=(0.5, 0.5, 0.5), rotation=0.5, degrees=30, zoom=0.5, scale=0.35, intensity=0.2)
PRESETS = {"paper": PAPER, "strong": STRONG, "zoom": ZOOM, "none": Augmentation(flip=(0.0, 0.0, 0.0))}


@dataclass(frozen=True)
class IntensityChange:
    """What happens to one modality: x → contrast · x + brightness, then gamma, then noise."""

    brightness: float = 0.0
    contrast: float = 1.0
    gamma: float = 1.0
    noise: float = 0.0


@dataclass(frozen=True)
class Change:
    """Drawn parameters: all of the chance in one patch."""

    flip: tuple[bool, bool, bool]
    radians: float
    intensity: tuple[IntensityChange, ...]
    noise_seed: int
    zoom: tuple[float, float] = (1.0, 1.0)  # in plane and along z; above 1 things become smaller

    @property
    def moves(self) -> bool:
        """Whether voxels are interpolated."""
        return self.radians != 0 or self.zoom != (1.0, 1.0)


def draw(random: np.random.Generator, augmentation: Augmentation, channels: int) -> Change:
    """The same count of numbers is drawn always, so that a probability can change without moving the others."""
    flips = random.random(3) < augmentation.flip
    turn, angle = random.random(), random.uniform(-1, 1)
    intensity = []
    for _ in range(channels):
        on = random.random(4) < augmentation.intensity
        b, c, g, n = random.uniform(-1, 1, 4)
        intensity.append(
            IntensityChange(
                brightness=augmentation.brightness * b if on[0] else 0.0,
                contrast=1 + augmentation.contrast * c if on[1] else 1.0,
                gamma=(1 + augmentation.gamma) ** g if on[2] else 1.0,
                noise=augmentation.noise * abs(n) if on[3] else 0.0,
            )
        )
    noise_seed = int(random.integers(1 << 62))
    zooms, powers = random.random(), random.uniform(-1, 1, 2)
    plane, along = (1 + augmentation.scale) ** powers if zooms < augmentation.zoom else (1.0, 1.0)
    return Change(
        flip=(bool(flips[0]), bool(flips[1]), bool(flips[2])),
        radians=float(np.deg2rad(augmentation.degrees) * angle) if turn < augmentation.rotation else 0.0,
        intensity=tuple(intensity),
        noise_seed=noise_seed,
        zoom=(float(plane), float(along)),
    )


def read_size(patch: tuple[int, int, int], change: Change, aspect: float) -> tuple[int, int, int]:
    """The box to read so that the moved patch has real voxels in its corners. `aspect`: y spacing / x spacing."""
    if not change.moves:
        return patch
    cos, sin = abs(np.cos(change.radians)), abs(np.sin(change.radians))
    plane, along = change.zoom
    x, y, z = plane * patch[0], plane * patch[1], along * patch[2]
    deep = patch[2] if along == 1 else int(np.ceil(z)) + 2
    return int(np.ceil(cos * x + sin * y * aspect)) + 2, int(np.ceil(cos * y + sin * x / aspect)) + 2, deep


def apply(
    image_CXYZ: Floats, label_XYZ: Labels, change: Change, patch: tuple[int, int, int], aspect: float
) -> tuple[Floats, Labels]:
    """Turns, zooms, flips and changes intensities. Labels are moved, never mixed."""
    if change.radians != 0 or change.zoom[0] != 1:
        image_CXYZ, label_XYZ = _turn(image_CXYZ, label_XYZ, change.radians, change.zoom[0], patch, aspect)
    if change.zoom[1] != 1:  # after the turn, which leaves fewer lines
        image_CXYZ, label_XYZ = _stretch(image_CXYZ, label_XYZ, change.zoom[1], patch[2])
    axes = tuple(axis for axis, flip in enumerate(change.flip) if flip)
    if axes:
        image_CXYZ = np.flip(image_CXYZ, tuple(axis + 1 for axis in axes))
        label_XYZ = np.flip(label_XYZ, axes)
    image_CXYZ, label_XYZ = np.ascontiguousarray(image_CXYZ), np.ascontiguousarray(label_XYZ)
    for channel, (image, intensity) in enumerate(zip(image_CXYZ, change.intensity, strict=True)):
        _change_intensity(image, intensity, change.noise_seed + channel)
    return image_CXYZ, label_XYZ


def transplant(
    image_CXYZ: Floats,
    label_XYZ: Labels,
    donor_CXYZ: Floats,
    donor_XYZ: Labels,
    *,
    margin: int,
    ignore: int | None = None,
) -> tuple[Floats, Labels]:
    """What the donor has labelled, and `margin` voxels around it, takes the place of what is there."""
    from scipy.ndimage import maximum_filter

    lesions = donor_XYZ != 0 if ignore is None else (donor_XYZ != 0) & (donor_XYZ != ignore)
    taken = maximum_filter(lesions.astype(np.uint8), 2 * margin + 1) > 0
    return np.where(taken, donor_CXYZ, image_CXYZ), np.where(taken, donor_XYZ, label_XYZ)


def _stretch(image_CXYZ: Floats, label_XYZ: Labels, zoom: float, slices: int) -> tuple[Floats, Labels]:
    """Along z: linear for images, as a product with one small matrix, six times as fast as taking slices; nearest for
    labels.
    """
    deep = label_XYZ.shape[2]
    source = np.clip(zoom * (np.arange(slices) - (slices - 1) / 2) + (deep - 1) / 2, 0, deep - 1)
    weights = np.maximum(0, 1 - np.abs(np.arange(deep)[:, None] - source)).astype(np.float32)
    stretched = torch.from_numpy(np.ascontiguousarray(image_CXYZ)) @ torch.from_numpy(weights)
    return stretched.numpy(), label_XYZ[..., np.rint(source).astype(int)]


def _turn(
    image_CXYZ: Floats, label_XYZ: Labels, radians: float, zoom: float, patch: tuple[int, int, int], aspect: float
) -> tuple[Floats, Labels]:
    """Bilinear for images, nearest for labels; the centre of the box read becomes the centre of the patch."""
    from scipy.sparse import csr_array

    channels, big_x, big_y, z = image_CXYZ.shape
    x, y = np.meshgrid(
        np.arange(patch[0]) - (patch[0] - 1) / 2, np.arange(patch[1]) - (patch[1] - 1) / 2, indexing="ij"
    )
    cos, sin = zoom * np.cos(radians), zoom * np.sin(radians)
    source_x = np.clip(cos * x - sin * y * aspect + (big_x - 1) / 2, 0, big_x - 1).ravel()
    source_y = np.clip(sin * x / aspect + cos * y + (big_y - 1) / 2, 0, big_y - 1).ravel()
    low_x = np.minimum(source_x.astype(int), big_x - 2)
    low_y = np.minimum(source_y.astype(int), big_y - 2)
    part_x, part_y = source_x - low_x, source_y - low_y
    corners = [(i, j) for i in (0, 1) for j in (0, 1)]
    columns = np.stack([(low_x + i) * big_y + low_y + j for i, j in corners], axis=1)
    weights = np.stack([(part_x if i else 1 - part_x) * (part_y if j else 1 - part_y) for i, j in corners], axis=1)
    rows = np.arange(0, columns.size + 1, 4)
    matrix = csr_array((weights.ravel().astype(np.float32), columns.ravel(), rows), shape=(len(columns), big_x * big_y))
    turned = np.stack([matrix @ image.reshape(big_x * big_y, z) for image in image_CXYZ])
    nearest = np.rint(source_x).astype(int) * big_y + np.rint(source_y).astype(int)
    labels = label_XYZ.reshape(big_x * big_y, z)[nearest]
    return turned.reshape(channels, patch[0], patch[1], z), labels.reshape(patch[0], patch[1], z)


def _change_intensity(image: Floats, change: IntensityChange, seed: int) -> None:
    """Changes `image` in place."""
    if change.contrast != 1:
        image *= np.float32(change.contrast)
    if change.brightness != 0:
        image += np.float32(change.brightness)
    if change.gamma != 1:
        low, high = image.min(), image.max()
        if high > low:
            image -= low
            image /= high - low
            np.power(image, np.float32(change.gamma), out=image)
            image *= high - low
            image += low
    if change.noise > 0:
        numbers = torch.Generator().manual_seed(seed)  # torch draws three times as fast as numpy
        image += change.noise * torch.empty(image.shape).normal_(generator=numbers).numpy()
