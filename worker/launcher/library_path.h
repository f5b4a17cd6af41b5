// Where the loader looks for the worker's libraries: first in the LibTorch that was found and
// checked, whatever LD_LIBRARY_PATH said before. Programs that the worker starts see what it said
// before.
#ifndef MUSTER_WORKER_LAUNCHER_LIBRARY_PATH_H_
#define MUSTER_WORKER_LAUNCHER_LIBRARY_PATH_H_

#include <string>

namespace muster::launcher {

// For the program that this process becomes: puts a folder before the others in LD_LIBRARY_PATH,
// and keeps the variable's former value in another one. A program's own RUNPATH comes after it.
// Threading: changes the environment, so no other thread may run.
void PutFirst(const std::string& folder);

// In that program, at its beginning: LD_LIBRARY_PATH is again what it was. The loader has read it.
// Threading: as above.
void Restore();

}  // namespace muster::launcher

#endif  // MUSTER_WORKER_LAUNCHER_LIBRARY_PATH_H_
