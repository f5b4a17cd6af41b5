#include "worker/launcher/python.h"

#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/secret/worker_variable.h"

namespace muster::launcher {
namespace {

constexpr char kAsk[] =
    "exec 2>/dev/null; exec python3 -c \"import importlib.util as u; "
    "print(u.find_spec('torch').submodule_search_locations[0])\"";

std::string FirstLineOf(const std::string& command) {
  char line[4096] = {};
  FILE* output = popen(command.c_str(), "r");
  if (output == nullptr) return "";
  const bool any = fgets(line, sizeof(line), output) != nullptr;
  pclose(output);
  return any ? std::string(line, strcspn(line, "\n")) : "";
}

}  // namespace

std::string TorchOfPython() {
  return FirstLineOf(absl::StrCat("unset ", secret::kWorkerVariable, "; ", kAsk));
}

}  // namespace muster::launcher
