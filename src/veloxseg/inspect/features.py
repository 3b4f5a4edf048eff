"""What the decoder tells apart: u_1 at voxels of tumour, of high and of low metabolism, by t-SNE, network by network.

High metabolism is SUV 4 or more outside the label (the paper gives no threshold; `--suv` changes it). Without PET the
brightest 5 % of the first modality outside the label take its place. At most 2,000 voxels, the same for every network,
drawn with a seed. t-SNE is scikit-learn's (`pip install veloxseg[inspect]`); beside the picture stands the silhouette
of tumour against high metabolism, in the features themselves: t-SNE bends distances, so its picture proves nothing.
"""

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from veloxseg.dataset.layouts import open_dataset
from veloxseg.dataset.reading import read_scan
from veloxseg.image.resample import resample_image
from veloxseg.inspect.patches import Patch
from veloxseg.model.config import STRIDES
from veloxseg.model.network import VeloxSeg
from veloxseg.prepare.plan import Plan
from veloxseg.prepare.store import Prepared
from veloxseg.types import Array, Floats, Size

__all__ = ["CLASSES", "classes_of", "decoded", "draw_features", "embed", "heat_of", "sample_voxels"]

CLASSES = ("low metabolism", "high metabolism", "tumour")
COLOURS = ("#9aa5b1", "#E69F00", "#c8102e")
OUTSIDE = -1  # of no class
MOST_VOXELS = 2000
BRIGHT = 0.95


class Sampled(NamedTuple):
    """Voxels of the decoder's grid: patch, place, class."""

    patch: npt.NDArray[np.intp]
    place: npt.NDArray[np.intp]
    kind: npt.NDArray[np.intp]


class Drawn(NamedTuple):
    """A network in the picture."""

    name: str
    points: Floats  # (N, 2), by t-SNE
    feature_CXYZ: Floats  # of the patch that is shown
    silhouette: float | None


def heat_of(prepared: Prepared, patch: Patch, plan: Plan, suv: float) -> npt.NDArray[np.bool_]:
    """Voxels of the patch that are hot: SUV from the case's own PET, or bright ones where there is none."""
    pet = next((m.name for m in plan.modalities if m.kind == "pet"), None)
    if pet is None:
        first = patch.image_1CXYZ[0, 0].numpy()
        return first > np.quantile(first, BRIGHT)
    case = next(case for case in open_dataset(prepared.path).cases if case.name == patch.case)
    values = resample_image(read_scan(case, pet), prepared.placement(patch.case).network, "linear", 0.0)
    box = tuple(slice(c, c + p) for c, p in zip(patch.corner, plan.patch, strict=True))
    part = values[box]
    return np.pad(part, [(0, p - n) for p, n in zip(plan.patch, part.shape, strict=True)]) >= suv


def classes_of(label_XYZ: Array, hot_XYZ: Array, size: Size | None = None) -> npt.NDArray[np.intp]:
    """The class of every voxel of the decoder's grid: 2 where at least half of its voxels are tumour, 1 where hot.

    What lies beyond `size`, where a case is smaller than the patch, is OUTSIDE: it is no tissue of low metabolism.
    """
    tumour, hot = (_pooled(mask) for mask in (label_XYZ > 0, (hot_XYZ > 0) & ~(label_XYZ > 0)))
    inside = np.zeros(label_XYZ.shape, bool)
    inside[tuple(slice(side) for side in size or label_XYZ.shape)] = True
    return np.where(_pooled(inside) < 0.5, OUTSIDE, np.where(tumour >= 0.5, 2, np.where(hot >= 0.5, 1, 0)))


def _pooled(mask: Array) -> Floats:
    s = STRIDES[0]
    x, y, z = (n // s for n in mask.shape)
    return mask.astype(np.float32).reshape(x, s, y, s, z, s).mean((1, 3, 5))


def decoded(network: VeloxSeg, patch: Patch) -> Floats:
    """u_1 of a patch: (C, X, Y, Z) at a quarter of its resolution."""
    with torch.no_grad():
        return network.decode(network.encoder(patch.image_1CXYZ))[0][0].float().numpy()


def sample_voxels(classes: Sequence[npt.NDArray[np.intp]], most: int = MOST_VOXELS, seed: int = 0) -> Sampled:
    """As many voxels of each class as there are, a third of `most` at the most."""
    random = np.random.default_rng(seed)
    patch = np.concatenate([np.full(c.size, i) for i, c in enumerate(classes)])
    place = np.concatenate([np.arange(c.size) for c in classes])
    kind = np.concatenate([c.ravel() for c in classes])
    chosen = []
    for value in range(len(CLASSES)):
        found = np.flatnonzero(kind == value)
        chosen.append(random.permutation(found)[: most // len(CLASSES)])
    index = np.sort(np.concatenate(chosen))
    return Sampled(patch[index], place[index], kind[index])


def embed(features_NC: Floats, seed: int = 0) -> Floats:
    """(N, 2) by t-SNE."""
    from sklearn.manifold import TSNE

    perplexity = min(30.0, max(2.0, (len(features_NC) - 1) / 4))
    return TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(features_NC)


def silhouette(features_NC: Floats, kind: npt.NDArray[np.intp]) -> float | None:
    """Of tumour against high metabolism: 1 apart, 0 mixed; None where one of them is missing."""
    from sklearn.metrics import silhouette_score

    hot = kind > 0
    if len(set(kind[hot])) < 2 or hot.sum() < 4:
        return None
    return float(silhouette_score(features_NC[hot], kind[hot]))


def voxels_of(features: Sequence[Floats], sampled: Sampled) -> Floats:
    """(N, C) of the sampled voxels."""
    flat = [feature.reshape(len(feature), -1) for feature in features]
    return np.stack([flat[p][:, v] for p, v in zip(sampled.patch, sampled.place, strict=True)])


def draw_features(methods: Sequence[Drawn], kind: npt.NDArray[np.intp], patch: Patch) -> bytes:
    """For each network the scatter, and its decoded features in the slice of `patch` with the most tumour."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(methods), 8.2), layout="constrained")
    grid = figure.subplots(2, len(methods), squeeze=False)
    tumour = patch.label_XYZ > 0
    place = int(tumour.sum((0, 1)).argmax()) if tumour.any() else patch.size[2] // 2
    for (top, low), method in zip(grid.T, methods, strict=True):
        for value, title in enumerate(CLASSES):
            chosen = method.points[kind == value]
            top.scatter(chosen[:, 0], chosen[:, 1], s=5, color=COLOURS[value], label=title, lw=0)
        top.set(title=method.name, xticks=[], yticks=[], xlabel=_silhouette_text(method.silhouette))
        _draw_slice(low, method.feature_CXYZ, patch, place)
    grid[0, 0].set_ylabel("t-SNE of the decoder's last features")
    grid[1, 0].set_ylabel(f"{patch.case}, slice with the most tumour")
    handles = grid[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=len(CLASSES), frameon=False, fontsize=9, markerscale=3)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    return buffer.getvalue()


def _draw_slice(axes: Any, feature_CXYZ: Floats, patch: Patch, place: int) -> None:
    """The strength of the features over the scan, as far as the case reaches, and the outline of the label."""
    x, y, _ = patch.size
    extent = (0, patch.label_XYZ.shape[0], 0, patch.label_XYZ.shape[1])
    strength_XY = np.linalg.norm(feature_CXYZ[..., place // STRIDES[0]], axis=0)
    axes.imshow(patch.image_1CXYZ[0, 0, :, :, place].numpy().T, cmap="gray", origin="lower", extent=extent)
    axes.imshow(
        strength_XY.T, cmap="inferno", vmin=0, alpha=0.6, origin="lower", extent=extent, interpolation="bilinear"
    )
    label_XY = patch.label_XYZ[:, :, place] > 0
    if label_XY.any():
        axes.contour(label_XY.T.astype(float), [0.5], colors="#ff3030", linewidths=1.2, extent=extent)
    words = "first modality; colour: norm of the features, from 0 (dark)\n"
    words += "to this network's largest (bright); red line: label"
    axes.set(xticks=[], yticks=[], xlim=(0, x), ylim=(0, y))
    axes.set_xlabel(words, fontsize=8)


def _silhouette_text(value: float | None) -> str:
    return "" if value is None else f"silhouette of tumour against high metabolism {value:+.2f}"


def inspect_features(
    networks: Sequence[tuple[str, VeloxSeg, Plan]],
    prepared: Prepared,
    patches: Sequence[Sequence[Patch]],
    suv: float,
    seed: int = 0,
) -> tuple[dict[str, Any], bytes]:
    """Figures and picture. `patches` are those of each network, of the same cases and places."""
    hot = [heat_of(prepared, patch, networks[0][2], suv) for patch in patches[0]]
    kinds = [classes_of(patch.label_XYZ, heat, patch.size) for patch, heat in zip(patches[0], hot, strict=True)]
    sampled = sample_voxels(kinds, seed=seed)
    pictured = max(range(len(kinds)), key=lambda number: int((kinds[number] == 2).sum()))
    drawn, values = [], {}
    for (name, network, _), own in zip(networks, patches, strict=True):
        features = [decoded(network, patch) for patch in own]
        points = voxels_of(features, sampled)
        apart = silhouette(points, sampled.kind)
        drawn.append(Drawn(name, embed(points, seed), features[pictured], apart))
        values[name] = {"silhouette_tumour_high": apart}
    counts = {title: int((sampled.kind == value).sum()) for value, title in enumerate(CLASSES)}
    record = {"suv": suv, "seed": seed, "voxels": counts, "networks": values}
    return record, draw_features(drawn, sampled.kind, patches[0][pictured])
