"""Prune a trained network and train it again: `model/pruning.py` cuts, the usual loop trains.

RUN2/pruned/              the MODEL that pruning left, before it is trained again
RUN2/pruned/widths.json   what is kept by depth and stream, as in the paper's table
RUN2                      a plain training that starts from these weights (`init`)
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from veloxseg.console import warn
from veloxseg.errors import ConfigError, ModelError, shown
from veloxseg.files import sha256, writable_folder, write_json
from veloxseg.model.config import PRUNED
from veloxseg.model.count import parameters
from veloxseg.model.network import VeloxSeg
from veloxseg.model.pruning import kept_ratios, prune
from veloxseg.model_folder import ModelFolder, load_network, save_weights
from veloxseg.train.loop import train
from veloxseg.train.run_folder import Run
from veloxseg.train.settings import NETWORK, by_name

__all__ = ["prune_and_train", "prune_model", "pruned_settings", "read_size", "widths_lines"]

UNITS = {"": 1, "k": 1e3, "m": 1e6}


def read_size(text: str | int, whole: int) -> int:
    """How many parameters: 1200000, 900k, 1.2M, or a part of the whole such as 60%.

    >>> read_size("1.2M", 0), read_size("60%", 1000)
    (1200000, 600)
    """
    found = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([kKmM%]?)", str(text).strip())
    if found is None or float(found[1]) <= 0:
        raise ConfigError(f"--to {shown(text)!r} is no size; write 1.2M, 900k, 1200000 or 60%")
    number, unit = float(found[1]), found[2].lower()
    return round(whole * number / 100) if unit == "%" else round(number * UNITS[unit])


def prune_model(model: str | Path, folder: str | Path, what: str, to: str | int) -> ModelFolder:
    """Writes the pruned MODEL, and widths.json beside it."""
    source = ModelFolder.open(model)
    network = load_network(source)
    if not isinstance(network, VeloxSeg):
        raise ModelError(f"{shown(source.path)} is {source.architecture}; only VeloxSeg can be pruned")
    before = parameters(network)
    target = read_size(to, before)
    if target > before:
        warn(f"the network has {before / 1e6:.3f} M parameters, and {target / 1e6:.3f} M may stay: nothing is pruned")
    pruned = prune(network, what, target)
    smaller = VeloxSeg(pruned.config)
    smaller.load_state_dict(pruned.weights)
    folder = writable_folder(folder)
    result = replace(source, path=folder, network=pruned.config.to_json(), provenance=dict(source.provenance))
    save_weights(smaller, result.weights)
    record = {
        "what": what,
        "parameters_before": before,
        "parameters": parameters(smaller),
        "weights_before": sha256(source.weights),
        "widths": kept_ratios(pruned, network.config, source.plan.names[: network.config.modalities]),
    }
    result.provenance.update(pruned=record, weights_sha256=sha256(result.weights))
    result.write_description()
    write_json(folder / "widths.json", record)
    return result


def pruned_settings(
    model: str | Path, folder: str | Path, what: str, to: str | int, settings: dict[str, Any]
) -> dict[str, Any]:
    """Settings that train the pruned network on: those given, its widths, and its weights to begin with."""
    folder = Path(folder)
    result = ModelFolder.open(folder) if (folder / "model.json").is_file() else prune_model(model, folder, what, to)
    widths = {name: result.network[name] for name in (*PRUNED, "group_sizes") if name in result.network}
    return settings | widths | {"init": str(folder)}


def prune_and_train(
    model: str | Path,
    prepared: str | Path,
    folder: str | Path,
    what: str,
    to: str | int,
    changes: dict[str, Any],
    *,
    resume: bool = False,
) -> None:
    """The whole of `veloxseg prune`: `changes` to the recipe that the model was trained with."""
    folder = Path(folder)
    if Run(folder).exists and resume:
        train(prepared, folder, {}, resume=True)
        return
    settings = pruned_settings(model, folder / "pruned", what, to, _recipe_of(model))
    train(prepared, folder, settings | changes)


def _recipe_of(model: str | Path) -> dict[str, Any]:
    """What the model was trained with; of a MODEL without its RUN, its network alone."""
    for run in (Run(model), Run(Path(model).parent)):
        if run.exists:
            return by_name(run.read_settings().settings)
    network = ModelFolder.open(model).network
    return {name: value for name, value in network.items() if name in NETWORK and name != "classes"}


def widths_lines(record: dict[str, Any]) -> list[str]:
    """The table of kept widths for the terminal, below what its columns are."""
    rows = record["widths"]
    names = list(dict.fromkeys(name for row in rows for name in row))
    scans = [name for name in names if name not in ("depth", "tokens", "encoder", "decoder", "channels")]
    lines = ["hidden units divided by the width of their block, by depth (channels: their number)"]
    if scans:
        lines[0] += f"; {', '.join(scans)}: what its weights alone would keep, tokens: what is kept of each"
    lines.append("  ".join(f"{name:>9}" for name in names))
    for row in rows:
        cells = [_cell(row.get(name)) for name in names]
        lines.append("  ".join(f"{cell:>9}" for cell in cells))
    return lines


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, int) else f"{value:.2f}"
