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
  absl::StatusOr<std::vector<MetricsRow>> ReadMetrics(MetricsOf of, const std::string& job_id,
                                                      uint64_t from_step, size_t limit) override;
  absl::StatusOr<std::vector<LogRow>> ReadLogs(const std::string& job_id, uint64_t after_sequence,
                                               std::optional<uint32_t> rank, size_t limit) override;

 private:
  // A measurement and its number: a step's number is the step; passes are numbered from 1.
  struct Metrics {
    uint64_t number = 0;
    MetricsRow row;
  };
  void Write(MetricsOf of, const MetricsRow& row);
  // Removes the rows of later steps and their passes, because training may compute them again.
  void DropLater(const MetricsRow& step);
  // Returns whether a newer generation has computed this step or an earlier step.
  bool IsLate(const MetricsRow& row);

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
  // The measurements by kind, by job, and by step.
  std::map<MetricsOf, std::map<std::string, std::map<uint64_t, Metrics>>> metrics_;
  std::map<std::string, std::map<uint64_t, LogRow>> logs_;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_MEMORY_STORE_H_
