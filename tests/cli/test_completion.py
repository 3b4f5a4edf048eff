"""Completion scripts know every verb and option, and bash completes by them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from veloxseg.cli import VERBS, build_parser, main
from veloxseg.cli.completion import SHELLS, options_by_verb


@pytest.fixture(params=tuple(SHELLS))
def script(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    assert main(["completion", request.param]) == 0
    return request.param, capsys.readouterr().out


def test_every_verb_and_option_is_there(script: tuple[str, str]) -> None:
    shell, text = script
    known = options_by_verb(build_parser())
    assert set(known) == set(VERBS)
    for verb, (_, options) in known.items():
        assert re.search(rf"\b{verb}\b", text)
        of_verb = {
            "bash": rf"^    {verb}:.*$",
            "zsh": rf"^    {verb}\).*?;;$",
            "fish": rf"^.*__fish_seen_subcommand_from {verb}'.*$",
        }[shell]
        part = "\n".join(re.findall(of_verb, text, re.MULTILINE | (re.DOTALL if shell == "zsh" else 0)))
        assert "--debug" in part or "-l debug" in part
        for option in options:
            for name in option.names:
                spelt = name if shell != "fish" else re.sub("^--", "-l ", name) if name[:2] == "--" else f"-s {name[1]}"
                assert re.search(rf"(?<![\w-]){re.escape(spelt)}(?![\w-])", part), (verb, name)
            assert all(choice in part for choice in option.choices)


def test_the_shell_takes_the_script(script: tuple[str, str], tmp_path: Path) -> None:
    shell, text = script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(text)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["veloxseg", "pre"], {"prepare", "predict"}),
        (["veloxseg", "train", "--fo"], {"--fold", "--folds"}),
        (["veloxseg", "predict", "--runtime", "na"], {"native"}),
        (["veloxseg", "completion", "z"], {"zsh"}),
    ],
)
def test_bash_completes(
    words: list[str], expected: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["completion", "bash"])
    (tmp_path / "script").write_text(capsys.readouterr().out)
    command = f"source {tmp_path}/script; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _veloxseg; "
    done = subprocess.run(
        ["bash", "-c", command + 'printf "%s\\n" "${COMPREPLY[@]}"'], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == expected
