"""The paper's comparisons of whole networks: modalities, sizes, peers, and what pruning leaves.

Printed values are Dice in percent, parameters in millions (M) and multiply-accumulates in thousand millions (G), from
the table that `place` names by its caption.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

from veloxseg.peers.published import PUBLISHED
from veloxseg.peers.registry import PEERS
from veloxseg.study.ablations import AUTOPET, CONVOLUTION, FULL, WIDE
from veloxseg.study.table import Pruning, Row, Settings, Table, row
from veloxseg.tasks import TASKS

__all__ = ["ffn", "modalities", "modality_rows", "peers", "pruning", "scaling"]

MRI = "Segmentation performance comparison on the BraTS2021 dataset"
PETCT = "Comparisons of segmentation performance on PET/CT datasets"
SCORES = ("Dice", "HD95")


def modality_rows(names: Sequence[str]) -> tuple[Row, ...]:
    """Every modality alone, pairs where there are more than two, all as channels of one stream, all in own streams."""
    printed = {
        "ct": {"Dice": 21.43, "M": 1.39, "G": 1.61},
        "pet": {"Dice": 49.28, "M": 1.39, "G": 1.61},
        "early": {"Dice": 56.69, "M": 1.39, "G": 1.70},
        "streams": {"Dice": 62.51, "M": 1.66, "G": 1.79},
    }
    of_paper = printed if sorted(names) == ["ct", "pet"] else {}
    alone = [row(name, f"{name} alone", {"modalities": (name,)}) for name in names]
    pairs = [
        row(f"{a}+{b}", f"⟨{a}, {b}⟩, own streams", {"modalities": (a, b)})
        for a, b in (itertools.combinations(names, 2) if len(names) > 2 else ())
    ]
    streams = row("streams", f"⟨{', '.join(names)}⟩, own streams", {"fusion": "separate"})
    early = row("early", f"{' + '.join(names)}, early fusion", {"fusion": "early"})
    together = (streams, early) if len(names) > 1 else ()
    return tuple(replace(entry, paper=of_paper.get(entry.name, {})) for entry in (*together, *pairs, *alone))


def modalities(names: Sequence[str]) -> Table:
    rows = modality_rows(names)
    return Table(
        name="modalities",
        title="Modalities and how they are fused",
        place="Table 'Modality ablation experiments performed on AutoPET-II'",
        note=f"The paper's values are of {AUTOPET}.",
        rows=rows,
        first=rows[0].name,
    )


def scaling() -> Table:
    printed = {"b": (70.05, 1.66, 1.79), "s": (68.56, 1.19, 1.41), "b+": (71.56, 5.26, 4.27), "l": (72.11, 2.65, 2.45)}
    return Table(
        name="scaling",
        title="Scaling law",
        place="Table 'Accuracy results of VeloxSeg after increasing model size'",
        note="The paper's values are of AutoPET-II in nnU-Net's framework, which has another recipe.",
        rows=tuple(
            row(name, f"VeloxSeg-{name.upper()}", {"model": name}, Dice=dice, M=millions, G=macs)
            for name, (dice, millions, macs) in printed.items()
        ),
        first="b",
    )


def peers(names: Sequence[str]) -> Table:
    """Beside each network what is printed of data with such modalities: BraTS 2021, or both PET/CT data sets."""
    mri = set(names) == set(TASKS["brats2021"].modalities)
    ours = {"c": "VeloxSeg-C"} if mri else {}
    titles = ours | {"b": "VeloxSeg-B", "s": "VeloxSeg-S"} | {name: peer.title for name, peer in PEERS.items()}
    data = "BraTS 2021, 300 epochs" if mri else f"{AUTOPET}, and the scores of HECKTOR 2022 too"
    place, printed = (MRI, _of_brats) if mri else (PETCT, _of_petct)
    return Table(
        name="peers",
        title="VeloxSeg beside its peers",
        place=f"Tables '{place}' and 'Computational performance'",
        note=f"The paper's values are of {data}; its memory is a GPU's in MB at batch 2. Peers have no teachers.",
        rows=tuple(row(name, title, {"model": name}, **printed(name)) for name, title in titles.items()),
        first=next(iter(titles)),
    )


def _of_brats(name: str) -> dict[str, float]:
    return _published("brats2021", name)


def _of_petct(name: str) -> dict[str, float]:
    first, other = _published("autopet2", name), _published("hecktor2022", name)
    scores = {f"{key} AutoPET": first.pop(key, None) for key in SCORES}
    scores |= {f"{key} HECKTOR": other.get(key) for key in SCORES}
    return {key: value for key, value in scores.items() if value is not None} | first


def _published(task: str, name: str) -> dict[str, float]:
    figures = PUBLISHED[task].get(name)
    if figures is None:
        return {}
    found = {
        **dict(zip(SCORES, (figures.dice, figures.hd95), strict=True)),
        "M": figures.parameters,
        "G": figures.macs,
        "training MB": figures.training_mb,
        "patches/s GPU": figures.gpu,
        "patches/s CPU": figures.cpu,
    }
    return {key: value for key, value in found.items() if value is not None}


def pruning() -> Table:
    full: Settings = {"group_sizes": FULL}
    cut = Pruning(of="full", what="channels", to="jlc")
    return Table(
        name="pruning",
        title="JL-guided convolution against ℓ2 pruning",
        place="Table 'Domain generalization capability comparison of the JLC and ℓ2 pruning methods'",
        note="The paper's values are of BraTS 2021 → BraTS 2016, its external test: give yours by --external.",
        settings=CONVOLUTION,
        rows=(
            row("jlc", "JLC", **{"Dice external": 79.34, "M": 1.20}),
            row("full", "full convolution", full, **{"Dice external": 79.97, "M": 4.78}),
            row(
                "full-pruned", "full convolution, pruned and trained again", full, cut,
                **{"Dice external": 62.00, "M": 1.27},
            ),
        ),
        first="jlc",
    )  # fmt: skip


def ffn() -> Table:
    cut = Pruning(of="wide", what="ffn", to="chosen")
    names, printed = ("depth", "ct", "pet", "encoder", "decoder"), (
        (1, 3.07, 3.22, 3.02, 3.06), (2, 2.85, 2.82, 2.73, 2.75), (3, 2.37, 2.38, 2.26, 2.29), (4, 1.82, 1.85, 1.74)
    )  # fmt: skip
    return Table(
        name="ffn",
        title="Widths of the feed-forward layers, by pruning",
        place="Table 'Ratio of channels to input embeddings after pruning the FFN layers of PWA and JLC'",
        note="The paper prints Dice 69.94 before and 68.49 after pruning.",
        widths=tuple(dict(zip(names, line, strict=False)) for line in printed),
        rows=(
            row("wide", "expansion ⟨4, 4, 4, 4⟩", WIDE, Dice=69.94),
            row("pruned", "pruned to as many parameters as ⟨3, 3, 2, 2⟩", WIDE, cut, Dice=68.49),
            row("chosen", "expansion ⟨3, 3, 2, 2⟩: VeloxSeg-B"),
        ),
        first="wide",
    )
