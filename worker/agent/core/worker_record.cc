#include "worker/agent/core/worker_record.h"

#include "absl/strings/str_cat.h"

namespace muster::agent {

std::string WorkerId::ToString() const {
  return absl::StrCat("job '", job, "' generation ", generation, " rank ", rank);
}

}  // namespace muster::agent
