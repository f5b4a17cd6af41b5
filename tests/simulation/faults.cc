#include "tests/simulation/faults.h"

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace muster::simulation {

std::set<Fault> FaultsThatHold() {
  std::set<Fault> faults;
  for (const FaultKind& kind : kFaultKinds) {
    if (std::string(kind.not_yet).empty()) faults.insert(kind.fault);
  }
  return faults;
}

std::set<Fault> AllFaults() {
  std::set<Fault> faults;
  for (const FaultKind& kind : kFaultKinds) faults.insert(kind.fault);
  return faults;
}

absl::StatusOr<std::set<Fault>> ParseFaults(const std::string& names) {
  std::set<Fault> faults;
  for (const absl::string_view name : absl::StrSplit(names, ',', absl::SkipEmpty())) {
    const auto kind = std::find_if(kFaultKinds.begin(), kFaultKinds.end(),
                                   [&](const FaultKind& one) { return one.name == name; });
    if (kind == kFaultKinds.end()) {
      std::string known;
      for (const FaultKind& one : kFaultKinds) absl::StrAppend(&known, " ", one.name);
      return absl::InvalidArgumentError(
          absl::StrCat("there is no fault '", name, "'; known are:", known));
    }
    faults.insert(kind->fault);
  }
  return faults;
}

}  // namespace muster::simulation
