#include "worker/train/session/profile.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/exports/target.h"
#include "common/files/files.h"
#include "common/status/status.h"
#include "worker/checkpoint/exchange.h"
#include "worker/comm/traced/traced_communicator.h"
#include "worker/trace/chrome_trace.h"

namespace muster::train {

Profile::Profile(const std::optional<ProfileConfig>& config, const Identity& identity)
    : config_(config), identity_(identity) {}

SessionParts Profile::Trace(const SessionParts& parts) {
  if (!config_.has_value()) return parts;
  events_ = parts.events;
  SessionParts traced = parts;
  for (comm::Communicator** ranks : {&traced.control, &traced.gradients, &traced.parameters}) {
    *ranks = traced_.emplace_back(comm::Traced(*ranks, &recorder_)).get();
  }
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
  ASSIGN_OR_RETURN(const auto texts, checkpoint::GatherTexts(*traced_[0], mine, "trace", step));
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
