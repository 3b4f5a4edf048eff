"""Not there yet."""

import argparse

from veloxseg.errors import VeloxSegError

SUMMARY = "(not there yet)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(arguments: argparse.Namespace) -> None:
    raise VeloxSegError("`veloxseg convert` is not there yet")
