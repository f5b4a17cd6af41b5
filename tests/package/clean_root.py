"""Installs the packages in a Debian without compiler or LibTorch, trains with what is installed,
removes it, and looks for traces. Needs root, debootstrap, and this machine's mirrors of Debian and
PyPI.

    python -m tests.package.clean_root PACKAGES KIND [--work FOLDER] [--keep]

PACKAGES is the folder with the packages, KIND is one of wheel, tarball, debs. The base of the root
is made once in the folder, and each run works on a copy of it."""

import argparse
import contextlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

# Folders and files that this machine's pip and apt read. They have the same paths in the roots.
MIRRORS = ["/opt/pypi", "/opt/pypi-more", "/opt/wheels", "/etc/xdg/pip", "/etc/ssl/certs"]
BASE_PACKAGES = ["ca-certificates", "python3-venv"]
# Files that apt, dpkg and pip write about their own work, and files that only the run needs.
NO_TRACES = re.compile(
    r"/(proc|sys|dev|run|tmp|work|root|opt|srv/torch|etc/xdg/pip|etc/ssl)(/|$)"
    r"|/var/(cache|log|lib/(apt|dpkg))(/|$)"
    r"|/etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$|/etc/resolv.conf|__pycache__"
)
TORCH = "/srv/torch"
EXAMPLE = "licences-gpt.yaml"
FIRST_LOSS = re.compile(r"loss [0-9.]+")


class Root:
    """A folder with a Debian, in which commands run as in a machine of its own, but with the
    network of this one."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self._mounted = []

    def mount(self, source, at=None):
        target = self.folder / str(at or source).lstrip("/")
        target.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", source, target], check=True)
        self._mounted.append(target)

    def open(self, work):
        (self.folder / "proc").mkdir(exist_ok=True)
        self.mount("/dev")
        self.mount("/dev/pts")
        for mirror in MIRRORS:
            if os.path.isdir(mirror):
                self.mount(mirror)
        self.mount(work, "/work")
        shutil.copy("/etc/resolv.conf", self.folder / "etc/resolv.conf")

    def close(self):
        while self._mounted:
            subprocess.run(["umount", "--lazy", self._mounted.pop()], check=False)

    def run(self, command, user="root", check=True, **more):
        """The finished process of a shell command; its output is one text."""
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root" if user == "root" else "/tmp",
            "DEBIAN_FRONTEND": "noninteractive",
            "LC_ALL": "C.UTF-8",
        } | {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        # Everything that the command has started ends with it.
        words = ["unshare", "--pid", "--fork", "--kill-child", f"--mount-proc={self.folder}/proc"]
        words += ["chroot", f"--userspec={user}:{user}", self.folder, "/bin/bash", "-c", command]
        done = subprocess.run(
            words,
            env=environment | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout[-3000:]}")
        return done

    def files(self):
        """Every file, folder and link that could be a trace, and the users and groups."""
        found = set()
        for folder, folders, files in os.walk(self.folder):
            here = "/" + os.path.relpath(folder, self.folder).removeprefix(".")
            here = here.rstrip("/")
            folders[:] = [name for name in folders if not NO_TRACES.match(f"{here}/{name}")]
            found |= {f"{here}/{name}" for name in [*folders, *files]}
        found = {path for path in found if not NO_TRACES.search(path)}
        for name in ("passwd", "group"):
            lines = (self.folder / "etc" / name).read_text().splitlines()
            found |= {f"{name}: {line}" for line in lines}
        return found


def make_base(folder):
    """A Debian with what is needed to install packages of Python."""
    base = pathlib.Path(folder)
    if (base / "complete").exists():
        return base
    shutil.rmtree(base, ignore_errors=True)
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={','.join(BASE_PACKAGES)}", "bookworm"]
        + [base, "http://deb.debian.org/debian"],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    shutil.rmtree(base / "var/cache/apt/archives", ignore_errors=True)
    (base / "complete").touch()
    return base


@contextlib.contextmanager
def root_of(base, work, keep):
    folder = tempfile.mkdtemp(prefix="muster-root-", dir=base.parent)
    subprocess.run(["cp", "-a", "--reflink=auto", f"{base}/.", folder], check=True)
    root = Root(folder)
    try:
        root.open(work)
        assert not root.run("command -v gcc cc c++", check=False).stdout, "there is a compiler"
        yield root
    finally:
        root.close()
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


class Clock:
    """Seconds of each step, told as they pass."""

    @contextlib.contextmanager
    def __call__(self, what):
        begun = time.monotonic()
        yield
        print(f"{time.monotonic() - begun:6.1f} s  {what}", flush=True)


def train(root, muster, example, folder, user="root", **more):
    """Packs the licences and trains on them; tells how long the first loss takes."""
    root.run(f"mkdir -p {folder} && cp {example} {folder} && chown -R {user} {folder}")
    pack = (
        f"cd {folder} && {muster} data pack --tokenizer bytes --split 0.9 --out train.bin "
        "--out-rest validate.bin $(find /usr/share/common-licenses -type f | sort)"
    )
    root.run(pack, user, **more)
    # On a terminal, where the loss is shown as soon as it is there.
    job = shlex.quote(f"{muster} run licences-gpt.yaml --set 'stages=[{{fit: {{steps: 40}}}}]'")
    told = root.run(
        f"cd {folder}; date +%s.%N; script -qefc {job} /dev/null | stdbuf -oL tr '\\r' '\\n' | "
        'while read -r line; do echo "$(date +%s.%N) $line"; done; exit ${PIPESTATUS[0]}',
        user,
        **more,
    )
    begun, *lines = told.stdout.splitlines()
    assert any("SUCCEEDED" in line for line in lines), told.stdout[-3000:]
    at, first = next(line.split(" ", 1) for line in lines if FIRST_LOSS.search(line))
    print(f"{float(at) - float(begun):6.1f} s  from `muster run` to the first loss: {first}")
    at = lines[-1].split(" ")[0]
    print(f"{float(at) - float(begun):6.1f} s  to its end", flush=True)


def traces(before, after):
    return sorted(after - before) + [f"missing: {path}" for path in sorted(before - after)]


def check_no_traces(root, before):
    left = traces(before, root.files())
    assert not left, "left behind, or gone: " + ", ".join(left[:20])
    print("no trace is left", flush=True)


def one(packages, pattern):
    (found,) = packages.glob(pattern)
    return found.name


def without_libtorch(root, muster, folder):
    """The message that a user reads if LibTorch is missing."""
    told = root.run(f"cd {folder} && {muster} --devices", check=False)
    assert told.returncode == 1 and "there is no LibTorch in" in told.stdout, told.stdout
    print(told.stdout.strip(), flush=True)


def mount_torch(root):
    """Shows this machine's LibTorch to a root, as if somebody had put it there."""
    (torch,) = pathlib.Path.home().glob(".cache/muster/venv/lib/python3*/site-packages/torch")
    root.mount(torch, TORCH)


def wheel(root, packages, clock):
    name = one(packages, "*.whl")
    with clock("python3 -m venv"):
        root.run("python3 -m venv /srv/venv")
    before = root.files()
    root.run(f"/srv/venv/bin/pip install -q --no-deps /work/{name}")
    without_libtorch(root, "/srv/venv/bin/muster-worker", "/tmp")
    root.run("/srv/venv/bin/pip uninstall -q -y muster")
    check_no_traces(root, before)
    with clock("pip install of the wheel, with torch and the other packages"):
        root.run(f"/srv/venv/bin/pip install -q /work/{name}")
    root.run("/srv/venv/bin/pip uninstall -q -y muster")
    before = root.files()
    with clock("pip install of the wheel, where torch is installed"):
        root.run(f"/srv/venv/bin/pip install -q /work/{name}")
    print(root.run("/srv/venv/bin/pip check && /srv/venv/bin/muster version").stdout.strip())
    with clock("import muster"):
        root.run("/srv/venv/bin/python -c 'import muster; muster.Client'")
    package = "/srv/venv/lib/python3.11/site-packages/muster"
    train(root, "/srv/venv/bin/muster", f"{package}/share/doc/muster/{EXAMPLE}", "/tmp/job")
    root.run("/srv/venv/bin/pip uninstall -q -y muster")
    check_no_traces(root, before)


def tarball(root, packages, _):
    name = one(packages, "*.tar.gz")
    mount_torch(root)
    before = root.files()
    root.run(f"mkdir -p '/srv/some where' && tar xzf /work/{name} -C '/srv/some where'")
    (folder,) = (root.folder / "srv/some where").iterdir()
    inside = f"/srv/some where/{folder.name}"
    muster = shlex.quote(f"{inside}/bin/muster")
    example = shlex.quote(f"{inside}/share/doc/muster/licences-gpt.yaml")
    root.run(f"cp {example} /tmp/licences-gpt.yaml")
    without_libtorch(root, shlex.quote(f"{inside}/bin/muster-worker"), "/tmp")
    print("by $LIBTORCH:")
    train(root, muster, "/tmp/licences-gpt.yaml", "/tmp/job1", LIBTORCH=TORCH)
    print("by the link lib/muster/torch, after the folder was moved:")
    root.run(f"mv {shlex.quote(inside)} /srv/moved && ln -s {TORCH} /srv/moved/lib/muster/torch")
    train(root, "/srv/moved/bin/muster", "/tmp/licences-gpt.yaml", "/tmp/job2")
    root.run("rm -r /srv/moved '/srv/some where'")
    check_no_traces(root, before)


def debs(root, packages, clock):
    mount_torch(root)
    root.run("apt-get update -qq")
    both = [f"/work/{one(packages, pattern)}" for pattern in ("muster_*.deb", "muster-agent_*.deb")]
    # The packages that these depend on are no trace.
    needed = root.run(
        f"apt-get install -y -qq --no-install-recommends {' '.join(both)} && "
        "apt-get purge -y -qq muster muster-agent"
    )
    before = root.files()
    with clock("apt-get install of both packages, where what they depend on is installed"):
        root.run(f"apt-get install -y -qq --no-install-recommends {' '.join(both)}")
    assert "muster" in (root.folder / "etc/passwd").read_text(), needed.stdout
    # An upgrade must not forget the files that the packages have made.
    root.run(f"apt-get install -y -qq --reinstall --no-install-recommends {' '.join(both)}")
    without_libtorch(root, "/usr/bin/muster-worker", "/tmp")
    root.run(f"ln -s {TORCH} /usr/lib/muster/torch")
    example = "/usr/share/doc/muster/licences-gpt.yaml"
    train(root, "/usr/bin/muster", example, "/tmp/job", user="muster")
    # Starts the units' program as their user; systemd would make the folder.
    root.run("install -d -o muster -g muster -m 700 /var/lib/muster/musterd /var/lib/muster/agent")
    told = root.run(SERVICES, "muster", check=False)
    assert "SUCCEEDED" in told.stdout and told.returncode == 0, told.stdout[-3000:]
    print("a job ran through what the two units start", flush=True)
    root.run("rm /usr/lib/muster/torch")
    # Settings that were changed stay until the packages are purged.
    root.run("echo '# changed' >> /etc/default/musterd")
    root.run("apt-get remove -y -qq muster muster-agent")
    assert "# changed" in (root.folder / "etc/default/musterd").read_text()
    assert (root.folder / "var/lib/muster/musterd/muster.db").exists()
    root.run("apt-get purge -y -qq muster muster-agent")
    check_no_traces(root, before)


SERVICES = r"""
set -e
command_of() { sed -n 's/^ExecStart=//p' "/lib/systemd/system/$1.service"; }
. /etc/default/musterd; . /etc/default/muster-agent
eval "exec $(command_of musterd)" > /tmp/musterd.log 2>&1 &
coordinator=$!
eval "exec $(command_of muster-agent)" > /tmp/muster-agent.log 2>&1 &
agent=$!
export MUSTER_ADDRESS=/var/lib/muster/musterd
for _ in $(seq 100); do muster list > /dev/null 2>&1 && break; sleep 0.1; done
cd /tmp/job
muster submit licences-gpt.yaml --id service --wait --set world_size=1 \
  --set stages='[{fit: {steps: 25}}]' --set export.path=/tmp/job/second.safetensors
kill -TERM $agent
wait $agent
kill -TERM $coordinator
wait $coordinator
"""

KINDS = {"wheel": wheel, "tarball": tarball, "debs": debs}


def play(packages, kind, work, keep=False):
    base = make_base(pathlib.Path(work) / "base")
    packages = pathlib.Path(packages).resolve()
    with root_of(base, packages, keep) as root:
        KINDS[kind](root, packages, Clock())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("packages")
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--work", default="/var/tmp/muster-roots")
    parser.add_argument("--keep", action="store_true", help="keep the root")
    arguments = parser.parse_args()
    os.makedirs(arguments.work, exist_ok=True)
    play(arguments.packages, arguments.kind, arguments.work, arguments.keep)


if __name__ == "__main__":
    sys.exit(main())
