"""VeloxSeg inside nnU-Net: its trainers, and nnU-Net's own training and prediction with options instead of variables.

`nnunet trainers` prints the folder for nnUNet_extTrainer; `nnUNetv2_train ID 3d_fullres 0 -tr nnUNetTrainerVeloxSeg`
then finds the trainers. `nnunet train` and `nnunet predict` do the same without variables. It needs veloxseg[nnunet].
"""

import argparse
from pathlib import Path

from veloxseg.cli.numbers import few, side

SUMMARY = "train and predict VeloxSeg inside nnU-Net"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("trainers", help="print the folder for nnUNet_extTrainer").set_defaults(act=trainers)
    add_train(actions.add_parser("train", help="nnUNetv2_train with VeloxSeg", description="nnUNetv2_train."))
    add_predict(actions.add_parser("predict", help="nnUNetv2_predict, one case after the other"))


def add_train(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", metavar="DATASET", help="902 or Dataset902_STS, planned and preprocessed")
    parser.add_argument("configuration", metavar="CONFIGURATION", help="3d_fullres, 3d_lowres")
    parser.add_argument("fold", metavar="FOLD", help="0 to 4, or all")
    parser.add_argument("--short", action="store_true", help="a thousand steps without teachers, for a CPU")
    parser.add_argument("--preset", metavar="NAME", help="b (default), s, l, b+ or c")
    parser.add_argument("--patch", type=side, nargs=3, metavar="N", help="along the axes of nnU-Net's plans")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the recipe, such as epochs=100"
    )
    parser.add_argument("--plans", default="nnUNetPlans", metavar="NAME", help="default nnUNetPlans")
    parser.add_argument("--preprocessed", type=Path, metavar="FOLDER", help="nnU-Net's nnUNet_preprocessed")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="nnU-Net's nnUNet_results")
    parser.add_argument("--continue", dest="resume", action="store_true", help="go on from the last checkpoint")
    parser.add_argument("--npz", action="store_true", help="keep probabilities, for nnUNetv2_find_best_configuration")
    add_machine(parser)
    parser.add_argument("--workers", type=few, metavar="N", help="processes for augmentation (default: one per core)")
    parser.set_defaults(act=train)


def add_predict(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="RESULTS", help="a folder of nnUNet_results, with its fold_0, ...")
    parser.add_argument("-i", "--input", type=Path, required=True, help="folder with <case>_0000.nii.gz, ...")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the masks")
    parser.add_argument("--fold", nargs="+", default=[], metavar="K", help="default: all folds that are there")
    parser.add_argument("--checkpoint", default="checkpoint_final.pth", metavar="NAME", help="of a fold")
    parser.add_argument("--no-mirror", action="store_true", help="nnU-Net's --disable_tta: an eighth of the work")
    add_machine(parser)
    parser.set_defaults(act=predict)


def add_machine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda", "mps"), help="default cpu")
    parser.add_argument("--threads", type=few, metavar="N", help="of torch (default: as torch chooses)")


def run(arguments: argparse.Namespace) -> None:
    arguments.act(arguments)


def trainers(arguments: argparse.Namespace) -> None:
    from veloxseg.nnunet.commands import trainers_folder

    print(trainers_folder())


def train(arguments: argparse.Namespace) -> None:
    from veloxseg.machine import default_workers
    from veloxseg.nnunet.commands import TRAINERS, train
    from veloxseg.nnunet.settings import PATCH, PRESET, RECIPE

    train(
        arguments.dataset,
        arguments.configuration,
        arguments.fold,
        trainer=TRAINERS[1] if arguments.short else TRAINERS[0],
        folders={"nnUNet_preprocessed": arguments.preprocessed, "nnUNet_results": arguments.results},
        plans=arguments.plans,
        settings={
            PRESET: arguments.preset,
            PATCH: "x".join(map(str, arguments.patch)) if arguments.patch else None,
            RECIPE: " ".join(arguments.set) or None,
        },
        device=arguments.device,
        workers=default_workers() if arguments.workers is None else arguments.workers,
        threads=arguments.threads,
        resume=arguments.resume,
        probabilities=arguments.npz,
    )


def predict(arguments: argparse.Namespace) -> None:
    from veloxseg.console import say
    from veloxseg.machine import NOTICE
    from veloxseg.nnunet.commands import predict

    say(NOTICE)
    predict(
        arguments.model,
        arguments.input,
        arguments.output,
        folds=tuple(arguments.fold),
        checkpoint=arguments.checkpoint,
        mirror=not arguments.no_mirror,
        device=arguments.device,
        threads=arguments.threads,
    )
