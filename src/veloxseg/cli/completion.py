"""Prints a script that lets the shell complete verbs, options and their choices: bash, zsh or fish.

  bash   veloxseg completion bash > ~/.local/share/bash-completion/completions/veloxseg
  zsh    veloxseg completion zsh > ~/.zfunc/_veloxseg    (with fpath+=~/.zfunc before compinit)
  fish   veloxseg completion fish > ~/.config/fish/completions/veloxseg.fish

The script is made from the parsers and needs nothing else; make it again after an update.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

SUMMARY = "a completion script for bash, zsh or fish"


@dataclass(frozen=True, kw_only=True)
class Option:
    names: tuple[str, ...]  # -o, --output
    choices: tuple[str, ...]  # what may stand behind it; () for a file, a folder or free text
    takes_value: bool
    help: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter  # keeps the lines of the text above
    parser.add_argument("shell", choices=tuple(SHELLS))


def run(arguments: argparse.Namespace) -> None:
    from veloxseg.cli import build_parser

    print(SHELLS[arguments.shell](options_by_verb(build_parser())), end="")


Verbs = dict[str, tuple[str, list[Option]]]  # verb -> its line of help, its options


def options_by_verb(parser: argparse.ArgumentParser) -> Verbs:
    """What the parsers know. A choice of a positional argument has no name and is listed under ""."""
    (verbs,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    helps = {action.dest: action.help or "" for action in verbs._choices_actions}
    return {verb: (helps[verb], list(_options(sub))) for verb, sub in verbs.choices.items()}


def _options(parser: argparse.ArgumentParser) -> Iterator[Option]:
    for action in parser._actions:
        if action.option_strings or action.choices:
            yield Option(
                names=tuple(action.option_strings),
                choices=tuple(map(str, action.choices or ())),
                takes_value=action.nargs != 0,
                help=_one_line(action.help or ""),
            )


def _one_line(text: str) -> str:
    """Help without what a shell would take for its own."""
    return "".join(" " if c in "'\"`$\\[]:\n" else c for c in text).split("; ")[0].strip()


def bash(verbs: Verbs) -> str:
    cases = []
    for verb, (_, options) in verbs.items():
        for option in options:
            if option.choices and option.names:
                pattern = "|".join(f"{verb}:{name}" for name in option.names)
                cases.append(f'    {pattern}) words="{" ".join(option.choices)}" ;;')
        names = [name for option in options for name in option.names]
        free = [choice for option in options if not option.names for choice in option.choices]
        cases.append(f'    {verb}:*) words="{" ".join([*names, *free])}" ;;')
    return "\n".join(
        [
            "# completion of veloxseg for bash, made by `veloxseg completion bash`",
            "_veloxseg() {",
            '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""',
            '  if [ "$COMP_CWORD" -eq 1 ]; then',
            f'    words="{" ".join(verbs)} --help --version"',
            "  else",
            '    case "${COMP_WORDS[1]}:$before" in',
            *cases,
            "    esac",
            "  fi",
            '  COMPREPLY=($(compgen -W "$words" -- "$word"))',
            "}",
            "complete -o bashdefault -o default -F _veloxseg veloxseg",  # files where no word fits
            "",
        ]
    )


def zsh(verbs: Verbs) -> str:
    lines = [
        "#compdef veloxseg",
        "# completion of veloxseg for zsh, made by `veloxseg completion zsh`",
        "_veloxseg() {",
    ]
    lines += ["  local -a verbs=(", *(f"    '{verb}:{_one_line(text)}'" for verb, (text, _) in verbs.items()), "  )"]
    lines += [
        "  if (( CURRENT == 2 )); then",
        "    _describe verb verbs",
        "    return",
        "  fi",
        "  local verb=$words[2]",
    ]
    lines += ["  shift words", "  (( CURRENT-- ))", '  case "$verb" in']
    for verb, (_, options) in verbs.items():
        lines.append(f"    {verb}) _arguments \\")
        for option in options:
            values = f"({' '.join(option.choices)})" if option.choices else "_files"
            for name in option.names:
                value = f":value:{values}" if option.takes_value else ""
                lines.append(f"      '*{name}[{option.help}]{value}' \\")
            if not option.names:
                lines.append(f"      '1:choice:{values}' \\")
        lines.append("      '*:file:_files' ;;")
    return "\n".join([*lines, "  esac", "}", '_veloxseg "$@"', ""])


def fish(verbs: Verbs) -> str:
    lines = ["# completion of veloxseg for fish, made by `veloxseg completion fish`"]
    for verb, (text, options) in verbs.items():
        lines.append(f"complete -c veloxseg -n __fish_use_subcommand -f -a {verb} -d '{_one_line(text)}'")
        for option in options:
            words = [f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names]
            if option.choices:
                words.append(f"-{'x' if option.names else 'f'} -a '{' '.join(option.choices)}'")
            elif option.takes_value:
                words.append("-r")
            given = f"complete -c veloxseg -n '__fish_seen_subcommand_from {verb}'"
            lines.append(f"{given} {' '.join(words)} -d '{option.help}'")
    return "\n".join([*lines, ""])


SHELLS: dict[str, Callable[[Verbs], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
