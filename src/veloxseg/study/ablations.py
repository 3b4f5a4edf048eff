"""The paper's ablations: one part of VeloxSeg-B changed at a time.

Printed values are Dice in percent, parameters in millions (M) and multiply-accumulates in thousand millions (G), from
the table that `place` names by its caption.
"""

from collections.abc import Sequence
from dataclasses import replace

from veloxseg.study.table import Row, Settings, Table, row

__all__ = ["AUTOPET", "CONVOLUTION", "FULL", "WIDE", "attention", "groups", "jl", "loss_weights", "modules", "transfer"]

FOUR, FULL = (4, 4, 4, 4), (16, 32, 64, 128)
# the ablations of the paper begin with the convolution stream alone, hidden layers of four widths, and the old head
CONVOLUTION: Settings = {"attention": "none", "head": "transposed", "expansions": FOUR, "teachers": False}
BOTH: Settings = {"head": "transposed", "teachers": False}  # with the transformer stream
WIDE: Settings = {"expansions": FOUR, "transformer_expansions": FOUR}
AUTOPET = "AutoPET-II, 300 epochs"


def _sizes(sizes: Sequence[int]) -> str:
    return "⟨" + ", ".join(map(str, sizes)) + "⟩"


def _groups(sizes: tuple[int, ...], **paper: float) -> Row:
    name = "groups-" + "-".join(map(str, sizes))
    return row(name, f"group sizes {_sizes(sizes)}", {"group_sizes": sizes}, **paper)


def modules() -> Table:
    depthwise: Settings = {"kernel_sizes": (7,), "group_sizes": (1, 1, 1, 1)}
    convolution = (
        row(
            "width-32", "widths ⟨32, 64, 128, 256⟩, kernel 7", depthwise | {"base_width": 32},
            Dice=48.96, M=2.65, G=5.31,
        ),
        row("kernel-7", "widths ⟨16, 32, 64, 128⟩, kernel 7", depthwise, Dice=50.10, M=0.73, G=2.41),
        _groups((1, 1, 1, 1), Dice=53.65, M=0.66, G=2.30),
        _groups((1, 2, 2, 4), Dice=53.95, M=0.75, G=2.33),
        _groups((2, 4, 4, 8), Dice=54.40, M=0.89, G=2.44),
        _groups((4, 8, 8, 16), Dice=55.84, M=1.18, G=2.66),
        _groups((8, 16, 16, 32), Dice=55.14, M=1.75, G=3.11),
        _groups(FULL, Dice=56.20, M=4.76, G=4.18),
    )  # fmt: skip
    both = (
        row(
            "attention-depth-2", "attention, depth ⟨2, 2, 2, 2⟩, expansion ⟨4, 4, 4, 4⟩",
            BOTH | WIDE | {"transformer_depths": (2, 2, 2, 2)}, Dice=59.56, M=2.37, G=3.07,
        ),
        row(
            "attention-depth-1", "attention, depth ⟨1, 1, 1, 1⟩, expansion ⟨4, 4, 4, 4⟩", BOTH | WIDE,
            Dice=61.03, M=1.88, G=2.90,
        ),
        row("expansion-3322", "expansion ⟨3, 3, 2, 2⟩", BOTH, Dice=61.43, M=1.61, G=2.84),
        row(
            "teacher", "+ texture teachers", {"head": "transposed", "teachers": True, "transfer": "none"},
            Dice=59.64, M=1.61, G=2.84,
        ),
        row("pixel-shuffle", "+ pixel shuffle", {"teachers": True, "transfer": "none"}, Dice=59.71, M=1.66, G=1.79),
        row(
            "gram", "+ Gram supervision: VeloxSeg-B", {"teachers": True, "transfer": "gram"},
            Dice=62.51, M=1.66, G=1.79,
        ),
    )  # fmt: skip
    return Table(
        name="modules",
        title="Module ablation",
        place="Table 'Module ablation experiments on AutoPET-II'",
        note=f"The paper's values are of {AUTOPET}. It prints three of these rows twice.",
        rows=(*(replace(entry, settings=CONVOLUTION | entry.settings) for entry in convolution), *both),
        first="gram",
    )


def groups() -> Table:
    rows = []
    for n in (1, 2, 4, 8):
        rule, same = (n, 2 * n, 2 * n, 4 * n), (2 * n,) * 4
        paper = {"Dice": 54.14} if n == 4 else {}
        rows += [
            row(f"jl-n{n}", f"JL rule, n = {n}: {_sizes(rule)}", {"group_sizes": rule}, **paper),
            row(f"same-n{n}", f"the same 2n, n = {n}: {_sizes(same)}", {"group_sizes": same}),
        ]
    return Table(
        name="groups",
        title="Group sizes by the JL rule against equal ones",
        place="Figure 'Dice performance comparison between different group size configurations'",
        note="A plot without numbers; its text gives 54.14 for n = 4. It calls {2n, 2n, 2n, 2n} the larger setup, "
        "which it is in MACs only: it has fewer parameters.",
        settings=CONVOLUTION | {"kernel_sizes": (3,)},
        rows=tuple(rows),
        first="jl-n4",
    )


def jl() -> Table:
    return Table(
        name="jl",
        title="Depth-wise, JL-guided and full convolution",
        place="Table 'Performance comparison of different group size configurations across datasets'",
        note="The paper's values are of HECKTOR 2022 (parameters and MACs too) and BraTS 2021, convolutions alone.",
        settings=CONVOLUTION | {"kernel_sizes": (3,)},
        rows=(
            _groups((1, 1, 1, 1), **{"Dice HECKTOR": 37.95, "Dice BraTS": 85.82}, M=0.618, G=2.637),
            _groups((4, 8, 8, 16), **{"Dice HECKTOR": 44.20, "Dice BraTS": 86.82}, M=0.709, G=2.712),
            _groups(FULL, **{"Dice HECKTOR": 43.21, "Dice BraTS": 87.98}, M=1.342, G=3.029),
        ),
        first="groups-4-8-8-16",
    )


def attention() -> Table:
    printed = (
        ("paired", "paired windows", 61.43, 1.61, 2.84, 724, 148),
        ("window", "windows", 56.01, 1.51, 2.80, 678, 1066),
        ("downsampled", "down-sampled", 55.18, 1.52, 2.78, 1066, 136),
    )
    return Table(
        name="attention",
        title="Attention mechanisms",
        place="Table 'Computation consumption of different attention variants'",
        note=f"The paper's values are of {AUTOPET}; its memory is a GPU's in MB at batch 2.",
        settings=dict(BOTH),
        rows=tuple(
            row(
                name, title, {"attention": name}, Dice=dice, M=millions, G=macs,
                **{"training MB": training, "inference MB": inference},
            )
            for name, title, dice, millions, macs, training, inference in printed
        ),
        first="paired",
    )  # fmt: skip


def transfer() -> Table:
    printed = (
        ("gram", "Gram matrices (SDKT)", 62.51, 241.08, 842),
        ("none", "teachers, no transfer", 59.71, 291.81, 824),
        ("l1", "ℓ1", 1.67, 626.79, 824),
        ("affinity", "affinity", 41.44, 354.01, 894),
        ("shared-roi", "shared region of interest", 57.15, 397.43, 1064),
    )
    without = row(
        "no-teachers", "no teachers (transposed head)", BOTH, Dice=61.43, M=1.61, G=2.84, **{"training MB": 724}
    )
    return Table(
        name="transfer",
        title="Knowledge transfer",
        place="Tables 'Comparison of knowledge transfer paths' and 'Computation consumption of different knowledge "
        "transfer methods'",
        note=f"The paper's values are of {AUTOPET}; its memory is a GPU's in MB at batch 2.",
        rows=(
            *(
                row(
                    name, title, {"teachers": True, "transfer": name}, Dice=dice, HD95=hd95, M=1.66, G=1.79,
                    **{"training MB": memory},
                )
                for name, title, dice, hd95, memory in printed
            ),
            without,
        ),
        first="gram",
    )  # fmt: skip


def loss_weights() -> Table:
    printed = (
        (0.5, 2.0, 62.51), (0.5, 2.5, 62.23), (0.5, 1.5, 62.44), (0.5, 1.0, 61.66), (0.5, 0.5, 60.55),
        (1.0, 1.5, 61.53), (1.5, 1.5, 58.03),
    )  # fmt: skip
    return Table(
        name="loss-weights",
        title="Weights of reconstruction and transfer",
        place="Table 'Hyperparameters experiments with loss weight on AutoPET-II'",
        note=f"The paper's values are of {AUTOPET}; it prints the row (0.5, 1.5) twice.",
        settings={"teachers": True},
        rows=tuple(
            row(
                f"rc{rc:g}-sdkt{sdkt:g}", f"λ_rc = {rc:g}, λ_sdkt = {sdkt:g}",
                {"reconstruction_weight": rc, "transfer_weight": sdkt}, Dice=dice,
            )
            for rc, sdkt, dice in printed
        ),
        first="rc0.5-sdkt2",
    )  # fmt: skip
