#include "worker/train/reports/session_reports.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "common/status/status.h"

namespace muster::train {

Attempts::Attempts(absl::Duration pause, const SessionReports* reports,
                   std::function<void(absl::Duration)> sleep)
    : pause_(pause), reports_(reports), sleep_(std::move(sleep)) {}

bool Attempts::TryAgain(const absl::Status& error, int attempt, const char* doing) const {
  const bool may_help = absl::IsResourceExhausted(error) || absl::IsInternal(error);
  if (!may_help || attempt >= kMost) return false;
  if (reports_->leader()) {
    spdlog::warn("{} failed, attempt {} of {}: {}", doing, attempt, kMost, Message(error));
  }
  reports_->Progress(doing);
  sleep_(pause_);
  return true;
}

}  // namespace muster::train
