"""The store keeps what it was told, upgrades what is old, and refuses what it does not know."""

import sqlite3
import stat
from pathlib import Path

import pytest

from veloxseg.errors import OutputError
from veloxseg.serve import cases
from veloxseg.serve.store import UPGRADES, Store


def test_a_store_of_every_older_version_is_upgraded_with_its_cases(tmp_path: Path) -> None:
    for version in range(1, len(UPGRADES)):
        folder = tmp_path / str(version)
        folder.mkdir()
        connection = sqlite3.connect(folder / "store.sqlite")
        for script in UPGRADES[:version]:
            connection.executescript(script)
        connection.execute(
            "INSERT INTO cases (id, title, source, state, message, confirm, found, chosen, warnings, revision, version,"
            " created, changed) VALUES ('old', 'kept', 'web', 'done', '', 0, '[]', '{}', '[]', 0, 1, 0, 0)"
        )
        connection.execute(f"PRAGMA user_version={version}")
        connection.commit()
        connection.close()
        store = Store(folder)
        told = cases.describe(store, cases.case_row(store, "old"))
        assert (told["title"], told["state"], told["outbox"]) == ("kept", "done", [])
        assert store.read("PRAGMA user_version")[0][0] == len(UPGRADES)
        store.close()


def test_a_newer_store_is_refused(tmp_path: Path) -> None:
    Store(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "store.sqlite")
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(OutputError, match="has version 99"):
        Store(tmp_path)


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite").write_bytes(b"something else entirely" * 100)
    with pytest.raises(OutputError, match="is no store of veloxseg"):
        Store(tmp_path)


def test_only_the_owner_can_look_inside(store: Store) -> None:
    case = cases.create(store, "x", model=None, confirm=False, source="web")
    for folder in (store.folder, store.folder / "cases", store.case_folder(case), store.case_folder(case) / "in"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_a_transaction_that_fails_changes_nothing(store: Store) -> None:
    case = cases.create(store, "x", model=None, confirm=False, source="web")

    def fail() -> None:
        with store.write() as connection:
            connection.execute("UPDATE cases SET title = 'y'")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert cases.case_row(store, case)["title"] == "x"


def test_deleting_a_case_takes_its_rows_and_files(store: Store, add_case, scans) -> None:
    case = add_case({path.name: path for path in scans.values()})
    cases.remove(store, case)
    assert not store.case_folder(case).exists()
    for table in ("cases", "files", "jobs", "revisions"):
        assert store.read(f"SELECT * FROM {table}") == []
    with pytest.raises(cases.Missing):
        cases.case_row(store, case)


def test_a_folder_without_a_case_is_removed(store: Store) -> None:
    stray = store.folder / "cases" / "stray"
    stray.mkdir()
    kept = cases.create(store, "x", model=None, confirm=False, source="web")
    cases.remove_strays(store)
    assert not stray.exists()
    assert store.case_folder(kept).is_dir()


def test_a_file_sent_twice_is_there_once(store: Store) -> None:
    case = cases.create(store, "x", model=None, confirm=False, source="web")
    for stored in ("first", "second"):
        (store.case_folder(case) / "in" / stored).write_bytes(b"1")
        cases.add_file(store, case, name="same.nii", stored=stored, size=1, digest="")
    assert [row["stored"] for row in store.read("SELECT stored FROM files")] == ["second"]
    assert [path.name for path in (store.case_folder(case) / "in").iterdir()] == ["second"]
