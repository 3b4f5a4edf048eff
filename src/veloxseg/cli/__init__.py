"""The command line: one verb, one module, one function.

A verb's module has `SUMMARY` (one line of help), `add_arguments(parser)` and `run(arguments)`. Modules are
imported to build the help, so they import torch and other heavy things inside `run` only; a test holds that
line. Exit codes: 0 done, 1 internal error, 2 bad input or usage, 130 stopped by the user.
"""

import argparse
import importlib
import itertools
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from veloxseg.console import set_quiet
from veloxseg.errors import ConfigError, VeloxSegError, did_you_mean, shown
from veloxseg.extras import missing_package
from veloxseg.files import no_empty_folders

__all__ = ["main"]

VERBS = (
    "demo",
    "phantom",
    "import",
    "check",
    "prepare",
    "train",
    "predict",
    "serve",
    "evaluate",
    "study",
    "inspect",
    "prune",
    "prompt",
    "export",
    "benchmark",
    "info",
    "convert",
    "nnunet",
    "completion",
)


def build_parser() -> argparse.ArgumentParser:
    from veloxseg import __version__

    parser = Parser(
        prog="veloxseg",
        description="Fast 3-D multimodal medical segmentation on a CPU. Research use only, not a medical device.",
    )
    parser.add_argument("--version", action="version", version=f"veloxseg {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in VERBS:
        module = importlib.import_module(f"veloxseg.cli.{verb}")
        sub = verbs.add_parser(verb, help=module.SUMMARY, description=module.__doc__)
        sub.add_argument("--quiet", action="store_true", help="print warnings and errors only")
        sub.add_argument("--debug", action="store_true", help="show the traceback of an error")
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return parser


class Parser(argparse.ArgumentParser):
    """Tells what is wrong with the arguments in one line, as for any other bad input."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{shown(message, 400)}; see `{self.prog} -h`")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if args is not None:
            args = _spread(args)
            self._check_options(args)
        return super().parse_known_args(args, namespace)

    def _check_options(self, words: Sequence[str]) -> None:
        """Names a misspelt option, of which argparse would only say that the right one is missing."""
        if any(action.nargs in (argparse.PARSER, argparse.REMAINDER) for action in self._actions):
            return  # the rest is for a verb's own parser, or for another program
        for word in itertools.takewhile(lambda word: word != "--", words):
            name = word.partition("=")[0]
            if name.startswith("--") and not any(known.startswith(name) for known in self._option_string_actions):
                self.error(f"unknown option {shown(name, 60)}{did_you_mean(name, self._option_string_actions)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            words = f"{shown(value, 60)!r} is unknown{did_you_mean(value, choices)}; choose from {', '.join(choices)}"
            raise argparse.ArgumentError(action, words)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if action.option_strings and arg_strings == ["--"]:  # of which argparse makes an empty list
            self.error(f"argument {action.option_strings[-1]}: '--' is no value")
        return super()._get_values(action, arg_strings)


def _spread(words: Sequence[str]) -> list[str]:
    """`--set a=1 b=2` as `--set a=1 --set b=2`; a word without `=` behind them is none of them."""
    result: list[str] = []
    settings = False
    for word in words:
        if settings and "=" in word and not word.startswith("-") and result[-1] != "--set":
            result.append("--set")
        settings = word == "--set" or (settings and "=" in word and not word.startswith("-"))
        result.append(word)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    try:
        arguments = build_parser().parse_args(argv)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    set_quiet(arguments.quiet)
    with no_empty_folders() as remove_empty_folders:
        code = run_verb(arguments)
        if code:
            remove_empty_folders()
    return code


def run_verb(arguments: argparse.Namespace) -> int:
    """Runs the verb; what goes wrong becomes one line and an exit code."""
    try:
        return arguments.run(arguments) or 0
    except VeloxSegError as error:
        if arguments.debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output is gone, and the work was not finished
        sys.stderr.close()
        return 130
    except MemoryError:
        print(
            "error: not enough memory; use smaller scans, fewer --workers, or predict with --max-ram", file=sys.stderr
        )
        return 2
    except OSError as error:  # what files and folders are like is no fault of the program
        if arguments.debug:
            raise
        where = "" if error.filename is None else f"{shown(error.filename)}: "
        reason = f"{where}{error.strerror or shown(error)}; check the path, its rights and the disk"
        print(f"error: {reason}", file=sys.stderr)
        return 2
    except Exception as error:
        if arguments.debug:
            raise
        what = f"veloxseg {arguments.verb}"
        if isinstance(error, ImportError) and (missing := missing_package(error, what)) is not None:
            print(f"error: {missing}", file=sys.stderr)
            return 2
        print(f"internal error: {type(error).__name__}: {shown(error, 400)} (--debug shows where)", file=sys.stderr)
        return 1
