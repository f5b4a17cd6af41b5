"""Members that ABSL_GUARDED_BY guards are touched under their lock: Clang's analysis
(-Wthread-safety) of every file and every header with such a member.

Clang reads the files and compiles nothing. They are read without optimising and without LibTorch's
libraries, so a file that only Clang refuses is mended as if Clang were the compiler."""

import concurrent.futures
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from tests.layering.sources import project_files, workspace

MARK = "ABSL_GUARDED_BY("
# They include CUDA's headers and NCCL's, which are there only for --config=cuda.
LEFT_OUT = "worker/comm/nccl/"
OPTIONS = [
    "-std=c++20",
    "-fsyntax-only",
    "-Wthread-safety",
    "-Werror",
    # Definitions of third_party/system:spdlog and of third_party/torch.
    "-DSPDLOG_SHARED_LIB",
    "-DSPDLOG_COMPILED_LIB",
    "-DSPDLOG_FMT_EXTERNAL",
    "-DAT_PER_OPERATOR_HEADERS",
    "-DUSE_DISTRIBUTED",
    "-DUSE_C10D_GLOO",
]


def texts():
    return {
        name: (workspace() / name).read_text()
        for name in project_files()
        if name.endswith((".cc", ".h")) and not name.startswith(LEFT_OUT)
    }


def files_to_check(of):
    """The .cc files of {name: text} that carry a guarded member or belong to a header that does;
    for another such header, the first file that includes it. Guarded members are private, so
    further files cannot touch them."""
    marked = {name for name, text in of.items() if MARK in text}
    included = {
        name: marked.intersection(re.findall(r'#include "([^"]+)"', text))
        for name, text in of.items()
        if name.endswith(".cc")
    }
    files = [name for name in included if name in marked or name[:-2] + "h" in marked]
    seen = set().union(*(included[name] for name in files))
    for name, headers in included.items():
        if headers - seen:
            files.append(name)
            seen |= headers
    return files


def libtorch():
    folder = os.environ.get("LIBTORCH")
    if folder is None:
        folder = importlib.util.find_spec("torch").submodule_search_locations[0]
    return pathlib.Path(folder, "include")


class Clang:
    """clang++ with all that the project's files include."""

    def __init__(self, folder):
        self._options = [f"-I{workspace()}", f"-I{folder}", "-isystem", folder / "torch"]
        self._options += ["-isystem", folder / "torch/torch/csrc/api/include"]
        # LibTorch's own protobuf and fmt must not stand before Debian's.
        (folder / "torch").mkdir()
        for name in ("ATen", "c10", "caffe2", "torch"):
            (folder / "torch" / name).symlink_to(libtorch() / name)
        protos = [name for name in project_files() if name.endswith(".proto")]
        subprocess.run(
            ["protoc", f"-I{workspace()}", f"--cpp_out={folder}", f"--grpc_out={folder}"]
            + [f"--plugin=protoc-gen-grpc={shutil.which('grpc_cpp_plugin')}"]
            + protos,
            cwd=workspace(),
            check=True,
        )
        # Headers that most of the files include are read once.
        header = "third_party/precompiled/rpc.hh"
        made = folder / "rpc.pch"
        options = [option for option in OPTIONS if option != "-fsyntax-only"]
        subprocess.run(
            ["clang++", *options, *self._options, "-fpch-instantiate-templates"]
            + ["-x", "c++-header", header, "-o", made],
            cwd=workspace(),
            check=True,
        )
        self._options += ["-include-pch", made]

    def says(self, file):
        """Returns the problems of a file; "" if there are none."""
        done = subprocess.run(
            ["clang++", *OPTIONS, *self._options, file],
            cwd=workspace(),
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stderr if done.returncode != 0 else ""


@pytest.fixture(scope="module")
def clang(tmp_path_factory):
    assert shutil.which("clang++"), "no clang++: third_party/install.sh --tests installs it"
    return Clang(tmp_path_factory.mktemp("clang"))


@pytest.fixture(scope="module")
def findings(request, clang):
    """{file: what Clang says}, of all files that this run of the tests asks for."""
    cases = [getattr(item, "callspec", None) for item in request.session.items]
    files = [case.params["file"] for case in cases if case is not None]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(files, pool.map(clang.says, files)))


@pytest.mark.parametrize("file", files_to_check(texts()))
def test_what_is_guarded_is_touched_under_its_lock(findings, file):
    if findings[file]:
        pytest.fail(findings[file], pytrace=False)


def test_a_guarded_member_that_is_read_without_its_lock_is_found(clang, tmp_path):
    text = """
        #include "absl/synchronization/mutex.h"
        class Counter {
         public:
          int count() {
            LOCK
            return count_;
          }
         private:
          absl::Mutex mutex_;
          int count_ ABSL_GUARDED_BY(mutex_) = 0;
        };
    """
    file = tmp_path / "counter.cc"
    file.write_text(text.replace("LOCK", ""))
    assert "reading variable 'count_' requires holding mutex 'mutex_'" in clang.says(file)
    file.write_text(text.replace("LOCK", "absl::MutexLock lock(&mutex_);"))
    assert clang.says(file) == ""


def test_every_file_and_header_with_a_guarded_member_is_checked():
    files = {
        "a.h": f"int a {MARK}m);",
        "a.cc": '#include "a.h"\n',
        "b.h": "",
        "b.cc": '#include "b.h"\n',
        "c.cc": f"int c {MARK}m);",
        "d.h": f"int d {MARK}m);",
        "e_test.cc": '#include "a.h"\n#include "d.h"\n',
        "f_test.cc": '#include "d.h"\n',
    }
    assert files_to_check(files) == ["a.cc", "c.cc", "e_test.cc"]
