// A store in memory, for tests and simulation.
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
  explicit MemoryStore(const StoreOptions& options = {}) : options_(options) {}

  absl::Status Commit(const Batch& batch) override;
  absl::StatusOr<std::string> Backup() override {
    return absl::UnimplementedError("a store in memory has no copies");
  }
  absl::StatusOr<Image> Load() override;
  absl::StatusOr<std::vector<MetricsRow>> ReadSteps(const std::string& job_id, uint64_t from_step,
                                                    size_t limit) override;
  absl::StatusOr<std::vector<MetricsRow>> ReadValidations(const std::string& job_id,
                                                          uint64_t from_step,
                                                          size_t limit) override;
  absl::StatusOr<std::vector<MetricsRow>> ReadTests(const std::string& job_id, uint64_t from_step,
                                                    size_t limit) override;
  absl::StatusOr<std::vector<LogRow>> ReadLogs(const std::string& job_id, uint64_t after_sequence,
                                               std::optional<uint32_t> rank, size_t limit) override;

 private:
  void WriteStep(const MetricsRow& row);
  struct Pass {
    uint64_t number = 0;
    MetricsRow row;
  };
  using Passes = std::map<uint64_t, Pass>;  // by step
  void WritePass(const MetricsRow& row, Passes* passes);
  static std::vector<MetricsRow> RowsOf(const Passes& passes, uint64_t from_step, size_t limit);
  // A newer generation has computed this step or one before it.
  bool IsLate(const std::string& job_id, uint64_t step, uint64_t generation) const;

  // A job's fields, and the rows of its lists.
  struct StoredJob {
    jobs::JobFields fields;
    std::map<uint32_t, jobs::Rank> ranks;
    std::map<std::string, CheckpointRow> checkpoints;
    std::map<uint64_t, jobs::FailureNote> failures;
    std::map<uint64_t, commands::Command> commands;
    std::map<uint32_t, jobs::AttemptEnd> attempts;
    std::map<uint64_t, jobs::SettingChange> setting_changes;
    jobs::Trainability trainability;  // without its history
    std::map<uint64_t, jobs::TrainabilityChange> trainability_changes;
    std::vector<jobs::JobEvent> events;
  };
  static jobs::Job Assemble(const StoredJob& stored);

  const StoreOptions options_;
  std::map<std::string, StoredJob> jobs_;
  std::map<std::string, NodeRow> nodes_;
  std::map<std::string, NodeMarkRow> node_marks_;
  std::map<std::string, RequestRow> requests_;
  std::map<uint64_t, DeliveryRow> deliveries_;
  uint64_t last_number_ = 0;
  // By job, then by step.
  std::map<std::string, std::map<uint64_t, MetricsRow>> steps_;
  // By job.
  std::map<std::string, Passes> validations_;
  std::map<std::string, Passes> tests_;
  std::map<std::string, std::map<uint64_t, LogRow>> logs_;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_MEMORY_STORE_H_
