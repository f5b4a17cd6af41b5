// The program that `pip install` puts on PATH as muster, musterd, muster-agent and muster-worker.
// It replaces itself by the program of the same name in the installed package `muster`, without
// starting Python. The place of the package is not known from pip, so the program looks in the
// usual places. Another Python's package may lie in such a place, so the package must have this
// program's version.
#include <glob.h>
#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

// The places of packages, from the folder of this program. The first two are for virtual
// environments, /usr/local and ~/.local, the next two for Debian's Python, and the last for `pip
// install --target`.
constexpr const char* kPlaces[] = {
    "../lib/python3*/site-packages", "../lib64/python3*/site-packages",
    "../lib/python3*/dist-packages", "../local/lib/python3*/dist-packages", ".."};

// Returns the folder of packages that fits a pattern and has the package of this version; empty if
// there is none.
std::string FolderOfPackage(const std::string& pattern) {
  const std::string info = pattern + "/muster-" MUSTER_VERSION ".dist-info";
  glob_t found;
  const bool any = glob(info.c_str(), 0, nullptr, &found) == 0 && found.gl_pathc > 0;
  const std::string first = any ? found.gl_pathv[0] : "";
  globfree(&found);
  return first.substr(0, first.rfind('/') + 1);
}

}  // namespace

int main(int, char** argv) {
  char path[PATH_MAX] = {};
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  const std::string self(path, length > 0 ? length : 0);
  const size_t slash = self.rfind('/');
  const std::string folder = self.substr(0, slash + 1);
  const std::string name = self.substr(slash + 1);
  for (const char* place : kPlaces) {
    const std::string packages = FolderOfPackage(folder + place);
    if (packages.empty()) continue;
    const std::string program = packages + "muster/bin/" + name;
    // The Python with which `muster data pack --tokenizer FILE` finds its package.
    const std::string python = folder + "python3";
    if (access(python.c_str(), X_OK) == 0) setenv("MUSTER_PYTHON", python.c_str(), 0);
    execv(program.c_str(), argv);
    fprintf(stderr, "%s: %s cannot be started: %s\n", name.c_str(), program.c_str(),
            strerror(errno));
    return 1;
  }
  fprintf(stderr,
          "%s: the package muster " MUSTER_VERSION
          " is not in the Python environment of %s; install it again with pip\n",
          name.c_str(), folder.c_str());
  return 1;
}
