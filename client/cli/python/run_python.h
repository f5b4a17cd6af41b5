// Programs of the Python package `muster` (client/python) that need libraries of Python, such as
// the tokenizers of Hugging Face.
#ifndef MUSTER_CLIENT_CLI_PYTHON_RUN_PYTHON_H_
#define MUSTER_CLIENT_CLI_PYTHON_RUN_PYTHON_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/terminal/console.h"
#include "nlohmann/json.hpp"

namespace muster::cli {

struct PythonProgram {
  std::string module;    // "muster.data"
  std::string packages;  // what it needs besides `muster`, for errors: "tokenizers"
  std::vector<std::string> arguments;
};

// Runs `python -m MODULE ARGUMENTS` to its end, and returns the JSON object that the program
// prints. The Python is $MUSTER_PYTHON, or python3. The program has this program's standard error.
// `interrupted` is called from time to time; an interrupt is passed on.
//
// INVALID_ARGUMENT: an argument, or a file that they name, is wrong. FAILED_PRECONDITION: Python,
// or a package of Python, is missing. UNKNOWN: another error. CANCELLED: interrupted.
absl::StatusOr<nlohmann::json> RunPython(const Console& console, const PythonProgram& program,
                                         const std::function<bool()>& interrupted);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_PYTHON_RUN_PYTHON_H_
