"""Tests of the packages' contents. tests/package/clean_root.py installs the packages and trains
with them."""

import base64
import configparser
import contextlib
import csv
import email
import hashlib
import http.server
import io
import json
import os
import pathlib
import queue
import re
import ssl
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile

import pytest

from tests.bazel import bound, runfile

PROGRAMS = ["muster", "muster-agent", "muster-worker", "musterd"]
# Libraries of every Linux that fits the wheel's platform tag (PEP 600).
SYSTEM = {
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libgcc_s.so.1",
    "libm.so.6",
    "libstdc++.so.6",
}
LIBTORCH = {"libtorch.so", "libtorch_cpu.so", "libc10.so"}
GLIBC = (2, 36)


def version():
    text = runfile("common/version/version.bzl").read_text()
    (found,) = re.findall(r'^VERSION = "(.*)"$', text, re.MULTILINE)
    return found


def packages(*patterns):
    folder = runfile("common/version/version.bzl").parents[2] / "deploy/package"
    return [path for pattern in patterns for path in folder.glob(pattern)]


def package(pattern):
    (found,) = packages(pattern)
    return found


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=True, **more).stdout


def unpacked(pattern, folder):
    """The files of a package as they are installed: path -> path on the disk."""
    path = package(pattern)
    if path.suffix == ".deb":
        run("dpkg-deb", "--extract", path, folder)
    elif path.suffix == ".whl":
        run(sys.executable, "-m", "zipfile", "-e", path, folder)
    else:
        run("tar", "xzf", path, "-C", folder)
    return {str(one.relative_to(folder)): one for one in folder.rglob("*") if one.is_file()}


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def dynamic(path, tag):
    told = run("readelf", "-dW", path)
    return re.findall(rf"\({tag}\).*\[(.*)\]", told)


KINDS = {
    "wheel": "*.whl",
    "tarball": "*.tar.gz",
    "deb_muster": "muster_*.deb",
    "deb_muster-agent": "muster-agent_*.deb",
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_version_is_the_one_of_the_source(kind):
    assert version() in package(KINDS[kind]).name


@pytest.mark.parametrize("kind", ["wheel", "tarball"])
def test_programs_need_only_what_every_linux_has_and_what_is_beside_them(kind, tmp_path):
    files = unpacked(KINDS[kind], tmp_path)
    programs = {path: one for path, one in files.items() if is_elf(one)}
    brought = {pathlib.Path(path).name for path in files if "/lib/muster/" in path}
    # muster-worker-cpu, and four programs; the wheel has four more for PATH.
    assert len([path for path in programs if ".so" not in path]) == (9 if kind == "wheel" else 5)
    for path, one in programs.items():
        allowed = SYSTEM | brought | (LIBTORCH if path.endswith("muster-worker-cpu") else set())
        assert set(dynamic(one, "NEEDED")) <= allowed, path
        if path.endswith("/bin/musterd"):
            # Debian's libraries have no path of their own: the program's leads to all of them.
            assert dynamic(one, "RPATH") == ["$ORIGIN/../lib/muster"]
            assert "libprometheus-cpp-core.so.1.0" in brought
        for symbol in re.findall(r"GLIBC_([0-9]+)\.([0-9]+)", run("readelf", "-VW", one)):
            assert tuple(map(int, symbol)) <= GLIBC, path


@pytest.mark.parametrize("kind", ["wheel", "tarball"])
def test_run_paths_are_relative_and_lead_to_libtorch(kind, tmp_path):
    files = unpacked(KINDS[kind], tmp_path)
    for path, one in files.items():
        if not is_elf(one):
            continue
        lines = dynamic(one, "RUNPATH") + dynamic(one, "RPATH")
        entries = [entry for line in lines for entry in line.split(":")]
        assert all(entry.startswith("$ORIGIN") for entry in entries), f"{path}: {entries}"
        if path.endswith("/lib/muster/muster-worker-cpu"):
            folders = {
                (one.parent / entry.replace("$ORIGIN", ".")).resolve() for entry in entries
            }
            beside = one.parents[3] / "torch/lib"
            assert {beside.resolve(), (one.parent / "torch/lib").resolve()} <= folders


def test_the_worker_of_the_debian_package_takes_libtorch_from_a_place_of_the_system(tmp_path):
    files = unpacked("muster-agent_*.deb", tmp_path)
    worker = files["usr/lib/muster/muster-worker-cpu"]
    assert dynamic(worker, "RUNPATH") == ["/usr/lib/muster/torch/lib"]
    others = {path: one for path, one in files.items() if is_elf(one) and one != worker}
    assert len(others) == 2
    assert not any(dynamic(one, "RUNPATH") for one in others.values())


@pytest.mark.parametrize("pattern", ["muster_*.deb", "muster-agent_*.deb"])
def test_debian_packages_depend_on_what_their_programs_need(pattern, tmp_path):
    files = unpacked(pattern, tmp_path)
    depends = run("dpkg-deb", "--field", package(pattern), "Depends")
    needed = {name for one in files.values() if is_elf(one) for name in dynamic(one, "NEEDED")}
    for library in sorted(needed - LIBTORCH - {"ld-linux-x86-64.so.2"}):
        path = f"*/x86_64-linux-gnu/{library}"
        owner = re.match("[^:,]+", run("dpkg-query", "--search", path))[0]
        # Debian gives libraries with several interfaces another name for each.
        named = rf"(^|, ){re.escape(owner)}(-\w+)?( |,|$)"
        assert re.search(named, depends), f"{library}: {owner}"
    settings = [f"/{path}" for path in files if path.startswith("etc/")]
    control = tmp_path / "control"
    run("dpkg-deb", "--control", package(pattern), control)
    assert (control / "conffiles").read_text().split() == settings
    for script in ("postinst", "postrm", "prerm"):
        run("sh", "-n", control / script)
        assert (control / script).stat().st_mode & 0o777 == 0o755


def test_services_start_what_the_packages_install(tmp_path):
    for pattern, service in [("muster_*.deb", "musterd"), ("muster-agent_*.deb", "muster-agent")]:
        folder = tmp_path / service
        folder.mkdir()
        files = unpacked(pattern, folder)
        unit = files[f"lib/systemd/system/{service}.service"].read_text()
        (program,) = re.findall(r"^ExecStart=/(\S+)", unit, re.MULTILINE)
        assert is_elf(files[program])
        (settings,) = re.findall(r"^EnvironmentFile=-/(\S+)", unit, re.MULTILINE)
        (variable,) = re.findall(r"^ExecStart=.*\$(\w+)$", unit, re.MULTILINE)
        assert re.search(rf"^{variable}=", files[settings].read_text(), re.MULTILINE)


def test_services_outlast_workers_that_are_killed_and_starts_that_fail(tmp_path):
    """Also the service that the guide shows."""
    units = []
    for pattern, service in [("muster_*.deb", "musterd"), ("muster-agent_*.deb", "muster-agent")]:
        folder = tmp_path / service
        folder.mkdir()
        files = unpacked(pattern, folder)
        units.append(files[f"lib/systemd/system/{service}.service"].read_text())
    guide = files["usr/share/doc/muster-agent/docs/how-to/operate.md"].read_text()
    units += re.findall(r"```text\n(\[Unit\]\n.*?)```", guide, re.DOTALL)
    assert len(units) == 3
    for unit in units:
        settings = configparser.ConfigParser(interpolation=None, strict=False)
        settings.optionxform = str
        settings.read_string(unit)
        assert settings["Service"]["Restart"] == "always"
        assert settings["Unit"]["StartLimitIntervalSec"] == "0"
        if "muster-agent" in settings["Service"]["ExecStart"]:
            assert settings["Service"]["OOMPolicy"] == "continue"


def test_the_wheel_says_what_it_is():
    with zipfile.ZipFile(package("*.whl")) as wheel:
        names = wheel.namelist()
        info = f"muster-{version()}.dist-info"
        metadata = email.message_from_bytes(wheel.read(f"{info}/METADATA"))
        assert (metadata["Name"], metadata["Version"]) == ("muster", version())
        required = {re.match("[a-z]+", one)[0]: one for one in metadata.get_all("Requires-Dist")}
        assert set(required) == {
            "gguf",
            "grpcio",
            "jinja",
            "numpy",
            "pandas",
            "protobuf",
            "pyarrow",
            "safetensors",
            "tokenizers",
            "torch",
            "xxhash",
        }
        extras = {one for one in required if "extra ==" in required[one]}
        assert extras == {"gguf", "jinja", "pandas", "pyarrow", "safetensors", "tokenizers"}
        stub = wheel.read("muster/_proto/proto/muster/v1/job_service_pb2_grpc.py").decode()
        (made_for,) = re.findall("GRPC_GENERATED_VERSION = '(.*)'", stub)
        assert required["grpcio"] == f"grpcio>={made_for}"
        record = list(csv.reader(io.StringIO(wheel.read(f"{info}/RECORD").decode())))
        assert sorted(row[0] for row in record) == sorted(names)
        for name, digest, size in record:
            if name.endswith("/RECORD"):
                continue
            content = wheel.read(name)
            found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
            assert (digest, int(size)) == (f"sha256={found.rstrip('=')}", len(content))


@pytest.mark.parametrize("kind", KINDS)
def test_the_licences_of_what_is_compiled_in_are_there(kind, tmp_path):
    files = unpacked(KINDS[kind], tmp_path)
    (path,) = [one for path, one in files.items() if path.endswith("/licences-of-libraries.txt")]
    text = path.read_text()
    # CLI11 and JSON for Modern C++, which are only headers, and PyTorch, whose headers the worker
    # includes.
    assert "University of Cincinnati" in text
    assert "Niels Lohmann" in text
    assert ("IDIAP Research Institute" in text) == (kind != "deb_muster")


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_has_the_time_of_the_version(kind, tmp_path):
    text = runfile("common/version/version.bzl").read_text()
    (epoch,) = map(int, re.findall(r"^SOURCE_DATE_EPOCH = (\d+)$", text, re.MULTILINE))
    path = package(KINDS[kind])
    if kind == "wheel":
        with zipfile.ZipFile(path) as wheel:
            times = {entry.date_time for entry in wheel.infolist()}
        assert times == {time.gmtime(epoch)[:6]}
        return
    stream = path.open("rb")
    if kind.startswith("deb"):
        stream = io.BytesIO(
            subprocess.run(
                ["dpkg-deb", "--fsys-tarfile", path], capture_output=True, check=True
            ).stdout
        )
    with contextlib.closing(stream), tarfile.open(fileobj=stream) as archive:
        members = archive.getmembers()
    assert {(member.mtime, member.uid, member.gid) for member in members} == {(epoch, 0, 0)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_images_of_the_example_can_be_drawn(kind, tmp_path):
    installed = tmp_path / "installed"
    installed.mkdir()
    files = unpacked(KINDS[kind], installed)
    (script,) = [one for path, one in files.items() if path.endswith("/images/digits.py")]
    folder = tmp_path / "drawn"
    run(sys.executable, script, folder, "--train", "2", "--test", "1")
    data = re.findall(r"(?:images|labels): ([\w-]+)", (script.parent / "images.yaml").read_text())
    assert sorted(data) == sorted(path.name for path in folder.iterdir())


def test_the_programs_of_the_wheel_start_from_path(tmp_path):
    run(
        sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-compile",
        "--target", tmp_path, package("*.whl"),
    )  # fmt: skip
    for program in PROGRAMS:
        path = tmp_path / "bin" / program
        assert is_elf(path)
        if program == "muster":
            assert run(path, "version") == f"muster {version()}\n"
        if program != "muster-worker":
            assert run(path, "--version") == f"{program} {version()}\n"


# Transfer codings for which nobody has asked: the status counts. Two have stubs for decoders.
ANSWERS = ["br", "zstd", "gzip", ""]


def receiver_of(posted):
    """A server whose answers are ANSWERS, in turn, to messages that it puts into a queue."""

    class Receiver(http.server.BaseHTTPRequestHandler):
        count = 0

        def do_POST(self):
            posted.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            coding = ANSWERS[Receiver.count % len(ANSWERS)]
            Receiver.count += 1
            self.send_response(200)
            if coding:
                self.send_header("Transfer-Encoding", coding)
            self.end_headers()
            self.wfile.write(b"no such coding")

    return http.server.HTTPServer(("127.0.0.1", 0), Receiver)


@pytest.mark.parametrize("trusts", ["nothing", "--webhook-ca", "SSL_CERT_FILE"])
@pytest.mark.parametrize("kind", ["tarball", "wheel"])
def test_musterd_posts_with_the_libcurl_that_is_in_it(kind, trusts, tmp_path):
    """libcurl's archive is linked without most of the libraries that it needs."""
    (tmp_path / "files").mkdir()
    files = unpacked(KINDS[kind], tmp_path / "files")
    programs = {}
    for name in ("muster", "musterd"):
        (programs[name],) = [one for path, one in files.items() if path.endswith(f"/bin/{name}")]
        programs[name].chmod(0o755)
    (job,) = [one for path, one in files.items() if path.endswith("/licences-gpt.yaml")]
    posted = queue.Queue()
    with (
        receiver_of(posted) as receiver,
        # The path of a socket is short.
        tempfile.TemporaryDirectory() as state,
    ):
        port = pathlib.Path(state) / "port"
        command = [programs["musterd"], "--state", state, "--listen", "127.0.0.1:0", "--insecure"]
        command += ["--port-file", port]
        environment = dict(os.environ)
        if trusts == "nothing":
            command += ["--webhook", f"http://localhost:{receiver.server_port}/"]
        else:
            command += ["--webhook", f"https://localhost:{receiver.server_port}/"]
            certificates = tmp_path / "certificates"
            authority = ["--ca", certificates / "ca"]
            run(programs["muster"], "certs", "init", *authority)
            run(
                programs["muster"], "certs", "issue", "coordinator", "receiver",
                "--host", "localhost", "--out", certificates, *authority,
            )  # fmt: skip
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificates / "receiver.crt", certificates / "receiver.key")
            receiver.socket = tls.wrap_socket(receiver.socket, server_side=True)
            if trusts == "--webhook-ca":
                command += [trusts, certificates / "ca.crt"]
            else:
                environment[trusts] = str(certificates / "ca.crt")
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        with subprocess.Popen(command, env=environment) as coordinator:
            try:
                while not port.exists():
                    assert coordinator.poll() is None
                    time.sleep(0.01)
                address = port.read_text().strip()
                for number in range(len(ANSWERS)):
                    run(
                        programs["muster"], "submit", "--address", address,
                        "--id", f"job-{number}", job, cwd=tmp_path,
                    )  # fmt: skip
                # A message that is not accepted comes again before the next one.
                for number in range(len(ANSWERS)):
                    message = posted.get(timeout=bound(30))
                    assert (message["job_id"], message["state"]) == (f"job-{number}", "QUEUED")
            finally:
                coordinator.kill()
                receiver.shutdown()


def test_the_programs_on_path_are_those_of_their_own_version(tmp_path):
    files = unpacked("*.whl", tmp_path / "wheel")
    script = files[f"muster-{version()}.data/scripts/muster"]
    entry = tmp_path / "bin/muster"
    older, own = [tmp_path / f"lib/python3.{minor}/site-packages" for minor in (10, 11)]
    entry.parent.mkdir()
    entry.write_bytes(script.read_bytes())
    for packages, number in [(older, "0.0.1"), (own, version())]:
        (packages / f"muster-{number}.dist-info").mkdir(parents=True)
        (packages / "muster/bin").mkdir(parents=True)
    (older / "muster/bin/muster").write_text("#!/bin/sh\necho older\n")
    (own / "muster/bin/muster").write_bytes(files["muster/bin/muster"].read_bytes())
    for program in (entry, older / "muster/bin/muster", own / "muster/bin/muster"):
        program.chmod(0o755)
    assert run(entry, "version") == f"muster {version()}\n"
    (own / f"muster-{version()}.dist-info").rmdir()
    told = subprocess.run([entry, "version"], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout) == (1, "")
    assert f"the package muster {version()} is not in the Python environment" in told.stderr


def test_a_worker_without_libtorch_says_what_to_do(tmp_path):
    files = unpacked("*.tar.gz", tmp_path)
    (worker,) = [one for path, one in files.items() if path.endswith("/bin/muster-worker")]
    told = subprocess.run(
        [worker, "--devices"],
        env={"PATH": "/nonexistent", "LIBTORCH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 1
    assert re.match(
        r"muster-worker: there is no LibTorch in \$LIBTORCH, /nonexistent; .* needs LibTorch \d.*"
        r"pip install 'torch==",
        told.stderr,
    )


def test_a_worker_with_libtorch_becomes_the_one_that_is_built_for_it(tmp_path):
    import torch

    files = unpacked("*.tar.gz", tmp_path)
    (worker,) = [one for path, one in files.items() if path.endswith("/bin/muster-worker")]
    found = {"PATH": "/usr/bin", "LIBTORCH": str(pathlib.Path(torch.__file__).parent)}
    assert run(worker, "--devices", env=found) == "cpu\n"
    assert run(worker, "--version", env=found) == f"muster-worker {version()}\n"


@pytest.mark.parametrize("other", ["LD_LIBRARY_PATH", "the first candidate"])
def test_a_worker_loads_the_libtorch_that_was_checked(other, tmp_path):
    import torch

    found = pathlib.Path(torch.__file__).parent
    files = unpacked("*.tar.gz", tmp_path)
    (worker,) = [one for path, one in files.items() if path.endswith("/bin/muster-worker")]
    installed = worker.parents[1]
    environment = {"PATH": "/usr/bin"}
    if other == "LD_LIBRARY_PATH":
        wrong = tmp_path / "wrong"
        environment["LD_LIBRARY_PATH"] = str(wrong / "lib")
        (installed / "lib/muster/torch").symlink_to(found)
    else:
        wrong = installed / "lib/muster/torch"
        (installed.parent / "torch").symlink_to(found)
    (wrong / "lib").mkdir(parents=True)
    (wrong / "lib/libtorch_cpu.so").touch()
    (wrong / "version.py").write_text("__version__ = '2.1.3'\n")
    assert run(worker, "--devices", env=environment) == "cpu\n"
