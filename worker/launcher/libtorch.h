// Where an installed worker finds LibTorch, and whether it is the one that it was built against. A
// program works only with the minor version of LibTorch that it was built against, because
// LibTorch's C++ interface changes between them. The loader looks for the worker's libraries first
// in the LibTorch that was found and checked, whatever LD_LIBRARY_PATH said before. Programs that
// the worker starts see what it said before.
#ifndef MUSTER_WORKER_LAUNCHER_LIBTORCH_H_
#define MUSTER_WORKER_LAUNCHER_LIBTORCH_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace muster::launcher {

struct LibTorch {
  // The folder that has lib/libtorch_cpu.so.
  std::string folder;
  // Whether it is built for CUDA.
  bool cuda = false;
};

struct Search {
  // The minor version that is needed: "2.13".
  std::string version;
  // The folder of the programs, which is "bin" in the folder that was installed.
  std::string programs;
  // $LIBTORCH; may be empty.
  std::string libtorch;
  // The folder of the package torch of `python3`, or nothing if it has none. Is asked last.
  std::function<std::string()> ask_python;
};

// In this order: $LIBTORCH (if it is set, no other place counts), lib/muster/torch of the installed
// folder, the folder `torch` beside the installed folder (Python packages lie there), the torch of
// `python3`.
// NOT_FOUND: none of these places has a LibTorch. FAILED_PRECONDITION: those that were found have
// another version. The message names the places and says what to do.
absl::StatusOr<LibTorch> FindLibTorch(const Search& search);

// The folder of the package torch of the `python3` on PATH; empty if there is none. Python does not
// get the worker's secret.
std::string TorchOfPython();

// For the program that this process becomes: puts a folder before the others in LD_LIBRARY_PATH,
// and keeps the variable's former value in another one. A program's own RUNPATH comes after it.
// Threading: changes the environment, so no other thread may run.
void PutFirst(const std::string& folder);

// In that program, at its beginning: LD_LIBRARY_PATH is again what it was. The loader has read it.
// Threading: as above.
void Restore();

}  // namespace muster::launcher

#endif  // MUSTER_WORKER_LAUNCHER_LIBTORCH_H_
