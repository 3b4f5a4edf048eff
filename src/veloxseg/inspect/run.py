"""`veloxseg inspect`: opens networks and cases, measures, writes WHAT.json and WHAT.png."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veloxseg.errors import ConfigError
from veloxseg.files import atomic_path, writable_folder, write_json
from veloxseg.inspect.attention import attention_distances, draw_attention, summarise_attention
from veloxseg.inspect.distances import draw_distances, measure_distances
from veloxseg.inspect.patches import open_network, patches
from veloxseg.machine import software
from veloxseg.prepare.store import Prepared

__all__ = ["WHAT", "Wanted", "inspect"]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    models: tuple[Path, ...]
    prepared: Path
    cases: int = 8
    seed: int = 0
    suv: float = 4.0
    edge: float | None = None  # the paper's one edge length of a voxel, instead of the spacing


def inspect(what: str, wanted: Wanted, output: str | Path) -> Path:
    """Writes `what`.json and `what`.png in `output`; returns the picture's path."""
    record, picture = WHAT[what](wanted)
    folder = writable_folder(output)
    write_json(folder / f"{what}.json", {"what": what, "cases": wanted.cases, **record, "software": software()})
    with atomic_path(folder / f"{what}.png") as temporary:
        temporary.write_bytes(picture)
    return folder / f"{what}.png"


def _names(models: Sequence[Path]) -> list[str]:
    names = [path.resolve().name for path in models]
    if len(set(names)) < len(names):  # rows/a/run and rows/b/run
        names = ["/".join(path.resolve().parts[-3:-1]) for path in models]
    return names if len(set(names)) == len(names) else [f"{number + 1}: {name}" for number, name in enumerate(names)]


def _attention(wanted: Wanted) -> tuple[dict[str, Any], bytes]:
    prepared, drawn, rows = Prepared.open(wanted.prepared), [], {}
    for name, path in zip(_names(wanted.models), wanted.models, strict=True):
        network, plan = open_network(path)
        if network.config.attention == "none":
            raise ConfigError(f"{path} has no attention; give a network with a transformer stream")
        spacing = plan.spacing if wanted.edge is None else (wanted.edge,) * 3
        images = (patch.image_1CXYZ for patch in patches(prepared, plan, wanted.cases))
        found = attention_distances(network, images, spacing)
        drawn.append((name, network, found))
        rows[name] = summarise_attention(network, found)
    return {"networks": rows}, draw_attention(drawn)


def _distances(wanted: Wanted) -> tuple[dict[str, Any], bytes]:
    prepared, rows = Prepared.open(wanted.prepared), {}
    for name, path in zip(_names(wanted.models), wanted.models, strict=True):
        network, plan = open_network(path)
        images = [patch.image_1CXYZ for patch in patches(prepared, plan, wanted.cases)]
        rows[name] = measure_distances(network, images, wanted.seed)
    return {"networks": rows}, draw_distances(list(rows.items()))


def _features(wanted: Wanted) -> tuple[dict[str, Any], bytes]:
    from veloxseg.inspect.features import inspect_features

    prepared = Prepared.open(wanted.prepared)
    opened = [open_network(path) for path in wanted.models]
    if len({plan.patch for _, plan in opened}) > 1:
        raise ConfigError("the networks have different patches; train them with one to compare the same voxels")
    networks = [(name, *one) for name, one in zip(_names(wanted.models), opened, strict=True)]
    own = [list(patches(prepared, plan, wanted.cases)) for _, plan in opened]
    return inspect_features(networks, prepared, own, wanted.suv, wanted.seed)


WHAT: dict[str, Callable[[Wanted], tuple[dict[str, Any], bytes]]] = {
    "attention": _attention,
    "features": _features,
    "distances": _distances,
}
