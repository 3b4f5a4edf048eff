"""`veloxseg inspect`: opens networks and cases, measures, writes WHAT.json and WHAT.png."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veloxseg.errors import ConfigError
from veloxseg.files import atomic_path, writable_folder, write_json
from veloxseg.inspect.attention import attention_distances, draw_attention, summarise_attention
from veloxseg.inspect.distances import draw_distances, measure_distances
from veloxseg.inspect.patches import Opened, Patch, open_network, patches, unseen_cases
from veloxseg.machine import software
from veloxseg.prepare.store import Prepared

__all__ = ["WHAT", "Wanted", "inspect", "names_of"]


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
    prepared, networks = Prepared.open(wanted.prepared), [open_network(path) for path in wanted.models]
    shown = Shown(wanted, prepared, _named(wanted.models, networks), unseen_cases(prepared, networks, wanted.cases))
    record, picture = WHAT[what](shown)
    folder = writable_folder(output)
    write_json(folder / f"{what}.json", {"what": what, "cases": shown.cases, **record, "software": software()})
    with atomic_path(folder / f"{what}.png") as temporary:
        temporary.write_bytes(picture)
    return folder / f"{what}.png"


@dataclass(frozen=True)
class Shown:
    """Networks by name, and the cases that they are shown."""

    wanted: Wanted
    prepared: Prepared
    networks: dict[str, Opened]
    cases: list[str]

    def patches(self, network: Opened) -> Iterator[Patch]:
        return patches(self.prepared, network.plan, self.cases)


def _named(models: Sequence[Path], networks: Sequence[Opened]) -> dict[str, Opened]:
    return dict(zip(names_of(models), networks, strict=True))


def names_of(models: Sequence[Path]) -> list[str]:
    """What the networks are called in the picture: their folders, or the rows of a study that they are of."""
    names = [path.resolve().name for path in models]
    if len(set(names)) < len(names) or "run" in names:  # of a study: runs/a/seed0/run and runs/b/seed0/run
        names = ["/".join(path.resolve().parts[-3:-1]) for path in models]
    return names if len(set(names)) == len(names) else [f"{number + 1}: {name}" for number, name in enumerate(names)]


def _attention(shown: Shown) -> tuple[dict[str, Any], bytes]:
    drawn, rows = [], {}
    for name, opened in shown.networks.items():
        network, edge = opened.network, shown.wanted.edge
        if network.config.attention == "none":
            raise ConfigError(f"{name} has no attention; give a network with a transformer stream")
        images = (patch.image_1CXYZ for patch in shown.patches(opened))
        found = attention_distances(network, images, opened.plan.spacing if edge is None else (edge,) * 3)
        drawn.append((name, network, found))
        rows[name] = summarise_attention(network, found)
    return {"networks": rows}, draw_attention(drawn)


def _distances(shown: Shown) -> tuple[dict[str, Any], bytes]:
    rows = {
        name: measure_distances(
            opened.network, [patch.image_1CXYZ for patch in shown.patches(opened)], shown.wanted.seed
        )
        for name, opened in shown.networks.items()
    }
    return {"networks": rows}, draw_distances(list(rows.items()))


def _features(shown: Shown) -> tuple[dict[str, Any], bytes]:
    from veloxseg.inspect.features import inspect_features

    if len({opened.plan.patch for opened in shown.networks.values()}) > 1:
        raise ConfigError("the networks have different patches; train them with one to compare the same voxels")
    networks = [(name, opened.network, opened.plan) for name, opened in shown.networks.items()]
    own = [list(shown.patches(opened)) for opened in shown.networks.values()]
    return inspect_features(networks, shown.prepared, own, shown.wanted.suv, shown.wanted.seed)


WHAT: dict[str, Callable[[Shown], tuple[dict[str, Any], bytes]]] = {
    "attention": _attention,
    "features": _features,
    "distances": _distances,
}
