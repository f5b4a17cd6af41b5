#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/web/metrics.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::web {
namespace {

Labels With(Labels labels, const char* name, std::string value) {
  labels.push_back({name, std::move(value)});
  return labels;
}

std::optional<double> Seconds(const std::optional<absl::Duration>& duration) {
  if (!duration.has_value()) return std::nullopt;
  return absl::ToDoubleSeconds(*duration);
}

class MemoryMetrics {
 public:
  explicit MemoryMetrics(Exposition* out)
      : now_(out->Gauge("muster_rank_memory_bytes",
                        "Memory of the rank's tensors by purpose, as of its last heartbeat.")),
        peak_(out->Gauge("muster_rank_memory_peak_bytes",
                         "The most memory that the rank's tensors have used at a time since its "
                         "process began, by purpose. The peaks may be of different times.")),
        resident_(out->Gauge("muster_rank_resident_memory_bytes",
                             "Memory of the rank's process as the kernel counts it.")),
        reserved_(
            out->Gauge("muster_rank_gpu_reserved_bytes",
                       "Memory that the rank's process has taken from its GPU, also for later; "
                       "absent on the CPU.")) {}

  void Set(const Labels& labels, const std::string& serialized) {
    v1::RankMemory memory;
    if (serialized.empty() || !memory.ParseFromString(serialized)) return;
    const std::pair<const char*, const v1::MemoryUse*> uses[] = {
        {"parameters", &memory.parameters()},
        {"gathered", &memory.gathered()},
        {"gradients", &memory.gradients()},
        {"moments", &memory.moments()},
        {"buckets", &memory.buckets()},
        {"activations", &memory.activations()},
        {"other", &memory.other()}};
    for (const auto& [purpose, use] : uses) {
      now_.Set(With(labels, "purpose", purpose), use->bytes());
      peak_.Set(With(labels, "purpose", purpose), use->peak_bytes());
    }
    resident_.Set(labels, memory.resident_bytes());
    if (memory.reserved_bytes() > 0) {
      reserved_.Set(labels, memory.reserved_bytes());
    }
  }

 private:
  Metric now_;
  Metric peak_;
  Metric resident_;
  Metric reserved_;
};

}  // namespace

void AddRankMetrics(const std::vector<service::ObservedJob>& jobs, Exposition* out) {
  Metric info = out->Gauge("muster_rank_info", "Always 1: a rank, with the node on which it runs.");
  Metric state = out->Gauge("muster_rank_state",
                            "1 for the state in which the rank is; other states are absent.");
  Metric step = out->Gauge("muster_rank_step", "Number of optimizer steps that the rank has done.");
  Metric silence =
      out->Gauge("muster_rank_silence_seconds",
                 "Time since the last message of the rank's process; absent before its "
                 "first one.");
  Metric standstill =
      out->Gauge("muster_rank_standstill_seconds",
                 "Time since the rank was last seen to make progress; absent before "
                 "its first message.");
  MemoryMetrics memory(out);
  for (const service::ObservedJob& job : jobs) {
    for (const service::ObservedRank& rank : job.ranks) {
      const Labels labels = {{"job_id", job.id}, {"rank", absl::StrCat(rank.rank)}};
      info.Set(With(labels, "node", rank.node), 1);
      state.Set(With(labels, "state", v1::RankStatus::State_Name(rank.state)), 1);
      step.Set(labels, rank.step);
      silence.Set(labels, Seconds(rank.silence));
      standstill.Set(labels, Seconds(rank.standstill));
      memory.Set(labels, rank.memory);
    }
  }
}

}  // namespace muster::web
