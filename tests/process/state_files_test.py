"""Who may read what musterd and its agent keep, and what is no state directory."""

import os
import sqlite3
import stat

from tests.process import jobs


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def test_state_is_its_users_alone_whatever_the_umask(muster):
    before = os.umask(0)
    try:
        daemon = muster.musterd(local_slots=2)
        job_file = jobs.write_job(muster.folder)
        muster.cli("submit", job_file, "--id", "job", "--wait")
        wide = {
            str(path.relative_to(muster.state)): oct(mode(path))
            for path in [muster.state, *muster.state.rglob("*")]
            if mode(path) != (0o700 if path.is_dir() else 0o600)
        }
        seen = {path.name for path in muster.state.rglob("*")}
        muster.stop(daemon)
    finally:
        os.umask(before)
    assert wide == {}
    assert seen >= {"muster.db", "lock", "ballast", "local-agent.log", "agent-id", "lease"}
    # Files that the user asked for have modes by the umask.
    assert mode(muster.folder / "model.safetensors") == 0o644


def test_a_directory_of_an_older_program_is_narrowed_with_its_files(muster):
    muster.stop(muster.musterd(local_slots=1))
    for path in [muster.state, *muster.state.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    daemon = muster.musterd(local_slots=1)
    assert mode(muster.state) == 0o700
    assert {mode(path) for path in muster.state.iterdir() if path.is_file()} == {0o600}
    muster.stop(daemon)


def test_a_musterd_that_cannot_write_its_address_goes_on(muster):
    """A full disk must not stop musterd. Clients that know musterd's address can use it."""
    (muster.state / "address").mkdir(parents=True)
    muster.state.chmod(0o700)
    daemon = muster.musterd()
    assert muster.cli("list").code == 0
    assert "does not lead to it" in muster.log()
    muster.stop(daemon)


def refused(muster, *more):
    daemon = muster.spawn(
        "musterd", "--listen", "127.0.0.1:0", "--state", muster.state, *more
    )
    muster.wait(daemon, expect=1)
    return muster.log(5)


def test_a_directory_that_others_use_is_refused(muster):
    muster.state.mkdir()
    muster.state.chmod(0o755)
    (muster.state / "thesis.txt").write_text("mine")
    assert "others may use this directory" in refused(muster)
    assert mode(muster.state) == 0o755
    assert [path.name for path in muster.state.iterdir()] == ["thesis.txt"]


def test_an_empty_or_foreign_database_is_no_new_store(muster):
    muster.state.mkdir(mode=0o700)
    file = muster.state / "muster.db"
    file.touch()
    said = refused(muster)
    assert "is empty (0 bytes)" in said and "Backup and restore" in said, said
    assert file.stat().st_size == 0
    file.unlink()
    with sqlite3.connect(file) as theirs:
        theirs.execute("CREATE TABLE songs (title TEXT)")
        theirs.execute("INSERT INTO songs VALUES ('one')")
        theirs.execute("PRAGMA application_id=7")
    theirs.close()
    contents = file.read_bytes()
    said = refused(muster)
    assert "another program's SQLite database" in said and "it was not changed" in said, said
    assert file.read_bytes() == contents
    file.unlink()
    muster.stop(muster.musterd())


def test_a_file_for_the_port_that_cannot_be_written_ends_musterd_with_its_name(muster):
    missing = muster.folder / "missing" / "port"
    arguments = ["--state", muster.state, "--local-slots", "1", "--port-file", missing]
    daemon = muster.spawn("musterd", *arguments)
    muster.wait(daemon, expect=1)
    assert str(missing) in muster.log(), muster.log()
