// The reasons of this coordinator's errors, and what to do about each. docs/errors.md lists them.
#ifndef MUSTER_COORDINATOR_SERVICE_REASONS_H_
#define MUSTER_COORDINATOR_SERVICE_REASONS_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace muster::service {

// By reason: one sentence for people, which ErrorInfo carries as `next`.
const std::map<absl::string_view, absl::string_view>& NextSteps();

// Of a reason that is not in the table, such as one that a worker reported: where to look.
std::string NextStep(const std::string& reason);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_REASONS_H_
