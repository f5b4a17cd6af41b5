// Asks Python where its packages lie.
#ifndef MUSTER_WORKER_LAUNCHER_PYTHON_H_
#define MUSTER_WORKER_LAUNCHER_PYTHON_H_

#include <string>

namespace muster::launcher {

// The folder of the package torch of the `python3` on PATH; empty if there is none. Python does not
// get the worker's secret.
std::string TorchOfPython();

}  // namespace muster::launcher

#endif  // MUSTER_WORKER_LAUNCHER_PYTHON_H_
