"""Makes the tarball: `tarball.py --out FILE --name muster-0.3.0 --epoch SECONDS --torch-license
FILE --file ...`. The same files give the same bytes."""

import argparse
import gzip
import io
import tarfile

import contents
import licences
import prefix


def write(out, name, files, epoch):
    folders = {""}
    for path in files:
        parts = path.split("/")[:-1]
        folders |= {"/".join(parts[:count]) for count in range(1, len(parts) + 1)}
    # gzip's own header would contain the time and the name of the file.
    with open(out, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for path in sorted([*folders, *files]):
                entry = tarfile.TarInfo(f"{name}/{path}".rstrip("/"))
                entry.mtime = epoch
                entry.uname = entry.gname = "root"
                if path in files:
                    entry.size, entry.mode = len(files[path].content), files[path].mode
                    archive.addfile(entry, io.BytesIO(files[path].content))
                else:
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                    archive.addfile(entry)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--torch-license", required=True)
    parser.add_argument("--epoch", type=int, required=True)
    contents.add_arguments(parser)
    arguments = parser.parse_args()
    files = contents.of_arguments(arguments)
    text = prefix.complete(files, arguments.torch_license)
    files[f"share/doc/muster/{licences.FILE}"] = contents.File(text)
    write(arguments.out, arguments.name, files, arguments.epoch)


if __name__ == "__main__":
    main()
