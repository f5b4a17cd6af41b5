// Finds the LibTorch of an installed worker, and checks its version. A program works only with the
// minor version of LibTorch with which it was built, because LibTorch's C++ interface changes
// between minor versions. The loader looks for the worker's libraries first in this LibTorch,
// whatever LD_LIBRARY_PATH contains. Programs that the worker starts get the original
// LD_LIBRARY_PATH.
#ifndef MUSTER_WORKER_LAUNCHER_LIBTORCH_H_
#define MUSTER_WORKER_LAUNCHER_LIBTORCH_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace muster::launcher {

struct LibTorch {
  // The folder that contains lib/libtorch_cpu.so.
  std::string folder;
  // True if this LibTorch is built for CUDA.
  bool cuda = false;
};

struct Search {
  // The minor version that is needed: "2.13".
  std::string version;
  // The folder of the programs: "bin" in the installed folder.
  std::string programs;
  // $LIBTORCH; may be empty.
  std::string libtorch;
  // Returns the folder of the package torch of `python3`, or nothing if there is none. Called last.
  std::function<std::string()> ask_python;
};

// Searches in this order:
// - $LIBTORCH; if it is set, no other place counts;
// - lib/muster/torch of the installed folder;
// - the folder `torch` beside the installed folder, where Python packages lie;
// - the torch of `python3`.
// NOT_FOUND: none of these places has a LibTorch. FAILED_PRECONDITION: the LibTorchs that were
// found have another version. The message names the places and says what to do.
absl::StatusOr<LibTorch> FindLibTorch(const Search& search);

// The folder of the package torch of the `python3` on PATH; empty if there is none. Python does not
// get the worker's secret.
std::string TorchOfPython();

// Puts a folder before the others in LD_LIBRARY_PATH for the program that this process becomes, and
// keeps the original value in another variable. A program's own RUNPATH comes after
// LD_LIBRARY_PATH. Threading: changes the environment, so no other thread may run.
void PutFirst(const std::string& folder);

// Restores the original LD_LIBRARY_PATH at the beginning of that program, after the loader has read
// it. Threading: as PutFirst.
void Restore();

}  // namespace muster::launcher

#endif  // MUSTER_WORKER_LAUNCHER_LIBTORCH_H_
