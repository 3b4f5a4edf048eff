"""A sample of each class of attack with a fixed seed; `make attack` runs thousands."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from attacks.attack import Attack, judge, veloxseg
from attacks.bench import Bench
from attacks.run import ALL, run, tell
from veloxseg.errors import VeloxSegError

ELSEWHERE = {"graphs", "kills-training", "kills-prediction"}  # slow, and each has tests of its own
SAMPLE = {  # so many of each class take half a minute on one core
    "headers": 60,
    "dicom": 40,
    "spacing": 5,
    "json": 12,
    "safetensors": 5,
    "names": 6,
    "options": 12,
    "disks": 4,
    "flips": 4,
}


def test_every_class_has_a_sample() -> None:
    assert SAMPLE.keys() | ELSEWHERE == set(ALL)


class TwoLines(VeloxSegError):
    """What our errors are built not to be."""

    def __str__(self) -> str:
        return "a\nb"


def test_the_judge_sees_what_has_not_held(tmp_path: Path) -> None:
    scan, output = tmp_path / "scan", tmp_path / "out"
    scan.write_text("voxels")
    output.mkdir()

    def fails(words: str, error: type[Exception] = VeloxSegError) -> None:
        raise error(words)

    def refuse_late() -> int:
        (output / "mask").write_text("half")
        return 2

    bad = {
        "not an error of ours": lambda: fails("x", RuntimeError),
        "not one line": lambda: fails("a\nb", TwoLines),
        "exit code 1": lambda: 1,
        "has changed": lambda: scan.write_text("others") and None,
        "a refusal left": refuse_late,
    }
    for words, act in bad.items():
        assert words in judge(Attack(told="", act=act, inputs=(scan,), output=output)).failure
    (output / "mask").unlink()
    good = Attack(told="", act=veloxseg("info", tmp_path / "missing"), inputs=(scan,), output=output)
    assert judge(good).outcome == "refused"
    assert judge(good).failure == ""


def test_a_crash_and_a_hang_are_failures_of_their_attack() -> None:
    """Both end the process; the attacks after them are told in another one."""
    found = run(0, 4, ["self-test"], None, lambda _: None)
    assert {row["index"]: row["failure"].split(":")[0] for row in found["failures"]} == {
        1: "the process ended with -11",
        2: "over 2 s",
    }
    assert found["classes"]["self-test"]["held"] == 2


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield Bench(folder)


@pytest.mark.parametrize("name", list(SAMPLE))
def test_a_sample_holds(name: str, bench: Bench, tmp_path: Path) -> None:
    failures = {}
    for index in range(SAMPLE[name]):
        attack = tell(name, 0, index, bench, tmp_path)
        if failure := judge(attack).failure:
            failures[index, attack.told] = failure
    assert not failures
