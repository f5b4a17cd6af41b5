"""Makes a Debian package: `deb.py --out FILE --version V --torch 2.13 --epoch SECONDS --debian
FILE... --libtorch FOLDER [--torch-license FILE] --file ...`. The same files give the same bytes.

--debian: control, in which {version}, {size}, {depends} and {torch} are replaced, and the scripts
of the package. Files below /etc are its configuration files. --libtorch: the libraries in this
folder belong to no Debian package. --torch-license: for a package with the worker."""

import argparse
import gzip
import hashlib
import os
import pathlib
import subprocess
import tempfile

import contents
import licences

CHANGES = """{package} ({version}) unstable; urgency=medium

  * Version {version}. /usr/share/doc/{package}/docs/how-to/upgrade.md says what is different.

 -- {maintainer}  {date}
"""


def depends(programs, libtorch):
    """Returns the packages of the libraries that these programs need. Each has the oldest version
    with the symbols that the programs use."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "debian").mkdir()
        (folder / "debian/control").write_text(
            "Source: muster\n\nPackage: muster\nArchitecture: amd64\n"
        )
        names = []
        for number, program in enumerate(programs):
            (folder / str(number)).write_bytes(program.content)
            names.append(f"-e{number}")
        told = subprocess.run(
            ["dpkg-shlibdeps", "-O", "--ignore-missing-info", f"-l{libtorch}", *names],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    assert told.returncode == 0, told.stderr
    return told.stdout.strip().removeprefix("shlibs:Depends=")


def copyright_of(license):
    """Returns the licences in the form of Debian's copyright files."""
    lines = [f" {line}" if line.strip() else " ." for line in license.decode().splitlines()]
    head = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n"
    return f"{head}Files: *\nCopyright: the authors of Muster\nLicense: Apache-2.0\n" + "\n".join(
        [*lines, ""]
    )


def dated(epoch):
    form = "+%a, %d %b %Y %H:%M:%S +0000"
    told = subprocess.run(
        ["date", "-u", "-d", f"@{epoch}", form],
        env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout.strip()


def build(out, files, debian, epoch):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "root"
        for path, file in [*files.items(), *((f"DEBIAN/{name}", one) for name, one in debian)]:
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content)
            target.chmod(file.mode)
        for path in [root, *root.rglob("*")]:
            if path.is_dir():
                path.chmod(0o755)
            os.utime(path, (epoch, epoch))
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zxz", "--threads-max=1", "--build", root, out],
            env=os.environ | {"SOURCE_DATE_EPOCH": str(epoch)},
            stdout=subprocess.DEVNULL,
            check=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("out", "version", "torch", "libtorch", "license"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--torch-license")
    parser.add_argument("--debian", nargs="+", required=True)
    contents.add_arguments(parser)
    arguments = parser.parse_args()

    files = contents.of_arguments(arguments)
    debian = {os.path.basename(one): contents.read(one) for one in arguments.debian}
    control = debian.pop("control").content.decode()
    fields = dict(line.split(": ", 1) for line in control.splitlines() if ": " in line)
    package = fields["Package"]
    license = pathlib.Path(arguments.license).read_bytes()
    changes = CHANGES.format(
        package=package,
        version=arguments.version,
        maintainer=fields["Maintainer"],
        date=dated(arguments.epoch),
    )
    documents = f"usr/share/doc/{package}"
    files[f"{documents}/copyright"] = contents.File(copyright_of(license).encode())
    text_of_licences = licences.text([], arguments.torch_license)
    files[f"{documents}/{licences.FILE}"] = contents.File(text_of_licences)
    files[f"{documents}/changelog.gz"] = contents.File(gzip.compress(changes.encode(), 9, mtime=0))
    programs = [file for file in files.values() if file.content.startswith(b"\x7fELF")]
    text = control.format(
        version=arguments.version,
        torch=arguments.torch,
        depends=depends(programs, pathlib.Path(arguments.libtorch).absolute()),
        size=sum(len(file.content) for file in files.values()) // 1024,
    )
    debian["control"] = contents.File(text.encode())
    settings = "".join(f"/{path}\n" for path in files if path.startswith("etc/"))
    debian["conffiles"] = contents.File(settings.encode())
    sums = "".join(
        f"{hashlib.md5(file.content).hexdigest()}  {path}\n" for path, file in sorted(files.items())
    )
    debian["md5sums"] = contents.File(sums.encode())
    build(arguments.out, files, sorted(debian.items()), arguments.epoch)


if __name__ == "__main__":
    main()
