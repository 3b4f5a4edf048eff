"""The options by which every verb names cases."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veloxseg.dataset.cases import Selection

__all__ = ["CASES", "add_selection", "selection"]

CASES = "a data set in any layout, a .csv or .json list, a PREPARED folder, or a folder of scans"


def add_selection(parser: argparse.ArgumentParser) -> None:
    from veloxseg.dataset.dataset import SPLITS
    from veloxseg.dataset.layouts import LAYOUTS

    parser.add_argument("--split", choices=[*SPLITS, "all"], help="take this part of the cases")
    parser.add_argument("--cases", nargs="+", default=[], metavar="NAME", help="take these cases")
    parser.add_argument("--cases-from", metavar="FILE", help="take the cases that a text file names, one on each line")
    parser.add_argument("--layout", default="auto", choices=["auto", *LAYOUTS], help="how the cases are laid out")


def selection(arguments: argparse.Namespace) -> "Selection":
    from veloxseg.dataset.cases import Selection, read_names

    listed = read_names(arguments.cases_from) if arguments.cases_from is not None else ()
    return Selection(layout=arguments.layout, split=arguments.split, names=(*arguments.cases, *listed))
