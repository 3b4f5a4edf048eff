"""Who was learnt from: by content, by name where nothing else is known, and by any member of an ensemble."""

from veloxseg.dataset.seen import Learning, LearntCase, Seen, look_up, same_scans

LEARNING = Learning(
    train=(LearntCase(name="anna", scans={"ct": "a1", "pet": "a2"}),),
    validation=(LearntCase(name="ben", scans={"ct": "b1", "pet": "b2"}),),
)
NAMES = Learning(train=(LearntCase(name="anna"),), validation=(LearntCase(name="ben"),))


def test_a_renamed_case_is_found_by_any_of_its_scans() -> None:
    assert look_up("x", ["zz", "a2"], [LEARNING]) == Seen(status="trained on", by="content", learnt_as="anna")
    assert look_up("x", ["b1"], [LEARNING]).status == "validated on"
    assert look_up("x", ["c1"], [LEARNING]) == Seen(status="unseen", by="content")


def test_a_name_alone_is_no_proof_where_the_content_is_known() -> None:
    assert look_up("anna", ["c1"], [LEARNING]) == Seen(status="unseen", by="content", namesake=True)


def test_models_of_older_data_know_names_alone() -> None:
    assert look_up("anna", ["c1"], [NAMES]) == Seen(status="trained on", by="name", learnt_as="anna")
    assert look_up("anna", ["c1"], [NAMES]).words == "trained on by name"
    assert look_up("x", ["c1"], [NAMES]) == Seen(status="unseen", by="name")


def test_seen_by_one_of_an_ensemble_is_seen() -> None:
    other = Learning(train=(LearntCase(name="dora", scans={"ct": "d1"}),))
    assert look_up("x", ["d1"], [LEARNING, other]).status == "trained on"
    assert look_up("x", ["b1"], [other, LEARNING]).status == "validated on"
    assert look_up("x", ["b1"], [None, LEARNING]).status == "validated on"
    assert look_up("x", ["c1"], [None, LEARNING]).status == "unknown"
    assert look_up("x", ["c1"], [other, LEARNING]).status == "unseen"


def test_same_scans_are_listed_once_for_each_pair() -> None:
    cases = {"a": {"ct": "1", "pet": "2"}, "b": {"ct": "3", "pet": "4"}, "c": {"ct": "1", "pet": "2"}}
    assert same_scans(cases) == [("c", "a", "ct")]
