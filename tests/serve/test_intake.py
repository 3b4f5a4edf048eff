"""Which model and which scans a case takes: by what has arrived, and never by a guess."""

from pathlib import Path
from typing import Any

import pytest

from support.models import build_plan, save_model
from veloxseg.predict.predictor import Options
from veloxseg.prepare.plan import ModalityPlan, Normalisation
from veloxseg.serve import cases
from veloxseg.serve.intake import Decision, Found, decide
from veloxseg.serve.models import Model, open_models
from veloxseg.serve.work import Bench
from veloxseg.serve.worker import work_once


def offered(**kinds: str) -> dict[str, Model]:
    """Models by name, each with its modalities in a word: `petct="ct pet"`."""
    return {
        name: Model(
            name=name,
            path=Path(name),
            kinds={modality: "mr" if modality.startswith("t") else modality for modality in words.split()},
            reference=words.split()[0],
            labels={"background": 0, "lesion": 1},
            may_miss=(),
        )
        for name, words in kinds.items()
    }


def scan(key: str, role: str, **more: Any) -> Found:
    return Found(**{"key": key, "role": role, "modality": role, "text": key, "dicom": True, **more})


CT, PET = scan("ct", "ct"), scan("pet", "pet")
BOTH = offered(ct="ct", petct="ct pet", pet="pet")


@pytest.mark.parametrize(("found", "model"), [([CT], "ct"), ([PET], "pet"), ([CT, PET], "petct"), ([PET, CT], "petct")])
def test_the_model_that_uses_most_of_what_came_is_taken(found: list[Found], model: str) -> None:
    decision = decide(found, BOTH, None)
    assert (decision.state, decision.model) == ("waiting", model)
    assert set(decision.chosen.values()) == {one.key for one in found}


def test_of_equal_models_the_first_is_taken() -> None:
    assert decide([CT, PET], offered(one="ct pet", two="pet ct"), None).model == "one"


def test_a_model_that_was_asked_for_is_taken() -> None:
    assert decide([CT, PET], BOTH, "pet") == Decision(state="waiting", model="pet", chosen={"pet": "pet"})


def test_of_two_pets_the_corrected_one_is_taken() -> None:
    """Scanners send the one without attenuation correction along."""
    corrected = scan("good", "pet", corrected=True)
    decision = decide([CT, PET, corrected], BOTH, None)
    assert (decision.state, decision.chosen) == ("waiting", {"ct": "ct", "pet": "good"})
    twice = decide([CT, corrected, scan("good too", "pet", corrected=True)], BOTH, "petct")
    assert (twice.state, twice.message) == ("choose", "2 scans could be the pet: choose")


def test_of_two_cts_the_one_in_the_frame_of_the_pet_is_taken() -> None:
    pet, low_dose, breath = (
        scan("pet", "pet", frame="1.2"),
        scan("low", "ct", frame="1.2"),
        scan("held", "ct", frame="3"),
    )
    decision = decide([breath, low_dose, pet], BOTH, None)
    assert (decision.state, decision.chosen) == ("waiting", {"ct": "low", "pet": "pet"})
    elsewhere = decide([breath, scan("other", "ct", frame="4"), pet], BOTH, "petct")
    assert (elsewhere.state, elsewhere.message) == ("choose", "2 scans could be the ct: choose")


def test_a_broken_scan_is_missing_and_its_fault_is_told() -> None:
    decision = decide([CT, scan("pet", "pet", problem="ends early")], offered(petct="ct pet"), None)
    assert decision.state == "incomplete"
    assert decision.message == "pet is missing; model petct takes ct, pet; pet: ends early"


def test_a_pet_that_comes_after_its_ct_changes_the_model(store, scans, tmp_path: Path, state) -> None:
    """As DICOM sends it: the CT alone suits one model, and with the PET the study is done again by the other."""
    ct = ModalityPlan(name="ct", kind="ct", normalisation=Normalisation(scheme="zscore_body"))
    paths = [
        save_model(tmp_path / "ct_only", build_plan(modalities=(ct,))),
        save_model(tmp_path / "both", build_plan()),
    ]
    bench = Bench(store, open_models(paths), runtime="torch", threads=1, options=Options())
    case = cases.create(store, "", model=None, confirm=False, source="dicom", study="1.2.3")
    bench.patience = 0
    seen = []
    for name, path in scans.items():
        (store.case_folder(case) / "in" / path.name).write_bytes(path.read_bytes())
        cases.add_file(store, case, name=path.name, stored=path.name, size=1, digest="", sop=name)
        cases.start_reading(store, case)
        while any([work_once(bench, lane, "tester") for lane in ("desk", "network")]):
            pass
        seen.append((state(case)["state"], state(case)["model"], state(case)["revision"]))
    assert seen == [("done", "ct_only", 0), ("done", "both", 1)]
