"""Tests of the Debian packages' scripts for installation, upgrade and purge. The scripts run with a
folder in place of the machine, and with programs that only note that they were called."""

import os
import subprocess

import pytest

from tests.bazel import runfile

PROGRAM = """#!/bin/sh
echo "${0##*/} $*" >> "$MACHINE/calls"
case "${0##*/} $*" in
  "getent passwd muster" | "getent group muster") [ -e "$MACHINE/$1" ] ;;
  "adduser "*) touch "$MACHINE/passwd" "$MACHINE/group" ;;
  "userdel muster") [ ! -e "$MACHINE/busy" ] && rm "$MACHINE/passwd" "$MACHINE/group" ;;
  "systemctl show "*) cat "$MACHINE/state" ;;
esac
"""
PROGRAMS = ["adduser", "deb-systemd-helper", "deb-systemd-invoke", "getent", "groupdel"]
PROGRAMS += ["systemctl", "userdel"]
SERVICES = {"muster": "musterd", "muster-agent": "muster-agent"}
STATES = {"muster": "musterd", "muster-agent": "agent"}


class Machine:
    def __init__(self, folder):
        self.folder = folder
        self.root = folder / "root"
        (self.root / "run/systemd/system").mkdir(parents=True)
        (self.root / "usr/bin").mkdir(parents=True)
        (folder / "bin").mkdir()
        for name in PROGRAMS:
            program = folder / "bin" / name
            program.write_text(PROGRAM)
            program.chmod(0o755)
        self.set_state("inactive")

    def set_state(self, state):
        (self.folder / "state").write_text(f"{state}\n")

    def run(self, package, script, *arguments):
        """Returns the programs that the script has called."""
        calls = self.folder / "calls"
        calls.write_text("")
        subprocess.run(
            ["sh", runfile(f"deploy/package/debian/{package}/{script}"), *arguments],
            env={
                "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
                "DPKG_ROOT": str(self.root),
                "MACHINE": str(self.folder),
            },
            check=True,
        )
        return calls.read_text().splitlines()

    def install(self, package):
        (self.root / "usr/bin" / SERVICES[package]).touch()
        self.run(package, "postinst", "configure", "")

    def start(self, package):
        """The files that systemd and the program make."""
        folder = self.state_of(package)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "file").touch()

    def remove(self, package):
        self.run(package, "prerm", "remove")
        (self.root / "usr/bin" / SERVICES[package]).unlink()
        self.run(package, "postrm", "remove")

    def purge(self, package):
        self.run(package, "postrm", "purge")

    def state_of(self, package):
        return self.root / "var/lib/muster" / STATES[package]

    def has_user(self):
        return (self.folder / "passwd").exists()


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.mark.parametrize("order", [["muster", "muster-agent"], ["muster-agent", "muster"]])
def test_purging_both_packages_leaves_nothing(machine, order):
    for package in SERVICES:
        machine.install(package)
        machine.start(package)
    first, second = order
    for package in order:
        machine.remove(package)
    assert machine.state_of(first).exists(), "removing keeps the state"
    machine.purge(first)
    assert not machine.state_of(first).exists()
    assert machine.state_of(second).exists() and machine.has_user(), "the other package needs them"
    machine.purge(second)
    assert not machine.has_user()
    assert not (machine.root / "var/lib/muster").exists()


@pytest.mark.parametrize("package", SERVICES)
def test_a_user_that_was_there_before_stays(machine, package):
    (machine.folder / "passwd").touch()
    machine.install(package)
    machine.start(package)
    machine.remove(package)
    machine.purge(package)
    assert machine.has_user()
    assert not (machine.root / "var/lib/muster").exists()


@pytest.mark.parametrize("package", SERVICES)
def test_a_state_that_was_there_before_stays(machine, package):
    machine.start(package)
    machine.install(package)
    machine.remove(package)
    machine.purge(package)
    assert (machine.state_of(package) / "file").exists()


@pytest.mark.parametrize("package", SERVICES)
def test_an_upgrade_and_another_installation_do_not_forget_what_is_the_packages_own(
    machine, package
):
    machine.install(package)
    machine.start(package)
    machine.run(package, "prerm", "upgrade", "0.3.1")
    machine.run(package, "postinst", "configure", "0.3.0")
    machine.remove(package)
    (machine.root / "usr/bin" / SERVICES[package]).touch()
    machine.run(package, "postinst", "configure", "0.3.1")
    machine.remove(package)
    machine.purge(package)
    assert not machine.has_user()
    assert not (machine.root / "var/lib/muster").exists()


@pytest.mark.parametrize("package", SERVICES)
def test_a_user_with_processes_does_not_make_a_purge_fail(machine, package):
    machine.install(package)
    machine.remove(package)
    (machine.folder / "busy").touch()
    machine.purge(package)
    assert machine.has_user()


@pytest.mark.parametrize("script", ["configure", "abort-upgrade"])
def test_an_upgrade_stops_the_agent_and_starts_it_again(machine, script):
    machine.install("muster-agent")
    machine.set_state("active")
    calls = machine.run("muster-agent", "prerm", "upgrade", "0.3.1")
    assert "deb-systemd-invoke stop muster-agent.service" in calls
    start = "systemctl start muster-agent.service"
    assert start in machine.run("muster-agent", "postinst", script, "0.3.0")
    assert start not in machine.run("muster-agent", "postinst", script, "0.3.0"), "once"


@pytest.mark.parametrize("state", ["inactive", "failed"])
def test_an_upgrade_does_not_start_an_agent_that_was_not_running(machine, state):
    machine.install("muster-agent")
    machine.set_state(state)
    machine.run("muster-agent", "prerm", "upgrade", "0.3.1")
    calls = machine.run("muster-agent", "postinst", "configure", "0.3.0")
    assert not [call for call in calls if " start" in call or "restart" in call]


def test_an_upgrade_restarts_musterd_without_stopping_it_before(machine):
    machine.install("muster")
    assert machine.run("muster", "prerm", "upgrade", "0.3.1") == []
    calls = machine.run("muster", "postinst", "configure", "0.3.0")
    assert "deb-systemd-invoke restart musterd.service" in calls
