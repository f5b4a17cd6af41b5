#include "worker/train/session/profile.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/exports/target.h"
#include "common/files/files.h"
#include "common/status/status.h"
#include "worker/comm/traced/traced_communicator.h"
#include "worker/device/host_values.h"
#include "worker/trace/chrome_trace.h"

namespace muster::train {
namespace {

// The texts of all ranks, in rank order. A collective.
absl::StatusOr<std::vector<std::string>> GatherTexts(const std::string& mine, int64_t step,
                                                     comm::Communicator& communicator) {
  const int64_t ranks = communicator.world_size();
  const at::Tensor size =
      device::HostTensor(std::array<int64_t, 1>{static_cast<int64_t>(mine.size())});
  const at::Tensor sizes = at::empty({ranks}, at::TensorOptions(at::kLong));
  RETURN_IF_ERROR(communicator.AllGather(sizes, size, {"sizes of the trace", step})->Wait());
  const auto lengths = device::HostValues<int64_t>(sizes);
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const at::Tensor text = device::HostText(mine, longest);
  const at::Tensor texts = at::empty({ranks * longest}, at::TensorOptions(at::kByte));
  RETURN_IF_ERROR(communicator.AllGather(texts, text, {"trace", step})->Wait());
  std::vector<std::string> all;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    all.emplace_back(device::TextOf(texts).substr(rank * longest, lengths[rank]));
  }
  return all;
}

}  // namespace

Profile::Profile(const std::optional<ProfileConfig>& config, const Identity& identity)
    : config_(config), identity_(identity) {}

SessionParts Profile::Trace(const SessionParts& parts) {
  if (!config_.has_value()) return parts;
  control_ = comm::Traced(parts.control, &recorder_);
  gradients_ = comm::Traced(parts.gradients, &recorder_);
  parameters_ = comm::Traced(parts.parameters, &recorder_);
  events_ = parts.events;
  SessionParts traced = parts;
  traced.control = control_.get();
  traced.gradients = gradients_.get();
  traced.parameters = parameters_.get();
  return traced;
}

bool Profile::Asked(int64_t step) const {
  return config_.has_value() &&
         std::find(config_->steps.begin(), config_->steps.end(), step) != config_->steps.end();
}

void Profile::BeginStep(int64_t step) {
  if (Asked(step)) recorder_.Start();
}

absl::Status Profile::EndStep(int64_t step) {
  if (!Asked(step)) return absl::OkStatus();
  const std::string mine = trace::ChromeEvents(identity_.rank, recorder_.Stop());
  ASSIGN_OR_RETURN(const auto texts, GatherTexts(mine, step, *control_));
  if (identity_.rank != 0) return absl::OkStatus();
  const std::string path =
      files::JoinPath(config_->directory, absl::StrCat(identity_.job, "-step-", step, ".json"));
  absl::Status written = files::CreateDirectories(config_->directory);
  if (written.ok()) written = exports::CheckPlace(path, {});
  if (written.ok()) written = files::WriteAtomically(path, trace::ChromeTrace(texts));
  if (written.ok()) {
    spdlog::info("trace of step {}: {}", step, path);
  } else {
    const std::string text = absl::StrCat("profile.directory: the trace of step ", step,
                                          " could not be written: ", Message(written));
    spdlog::warn("{}", text);
    events_->Report(Notice{"PROFILE_NOT_WRITTEN", text, step});
  }
  return absl::OkStatus();
}

}  // namespace muster::train
