// A store that forgets at the end of the process: for tests and simulation.
#ifndef MUSTER_COORDINATOR_STORE_MEMORY_STORE_H_
#define MUSTER_COORDINATOR_STORE_MEMORY_STORE_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/store/store.h"

namespace muster::store {

class MemoryStore : public Store {
 public:
  absl::Status Commit(const Batch& batch) override;
  absl::StatusOr<Image> Load() override;
  absl::StatusOr<std::vector<StepRow>> ReadSteps(const std::string& job_id, uint64_t from_step,
                                                 size_t limit) override;
  absl::StatusOr<std::vector<LogRow>> ReadLogs(const std::string& job_id, uint64_t after_sequence,
                                               std::optional<uint32_t> rank, size_t limit) override;

 private:
  std::map<std::string, jobs::Job> jobs_;
  std::map<std::string, NodeRow> nodes_;
  std::map<std::string, RequestRow> requests_;
  std::map<std::pair<std::string, uint64_t>, StepRow> steps_;
  std::map<std::string, std::map<uint64_t, LogRow>> logs_;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_MEMORY_STORE_H_
