#include "worker/control/report_spool.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/spool/spool.h"
#include "common/status/status.h"

namespace muster::control {
namespace {

// The approximate memory of a report besides its contents.
constexpr size_t kOverhead = 64;

size_t Size(const v1::WorkerReport& report) { return report.ByteSizeLong() + kOverhead; }

// The shortest time between two writes to the disk while the coordinator cannot be reached.
constexpr absl::Duration kSpoolPause = absl::Milliseconds(200);
// The time until the agent's disk is tried again after a failed write.
constexpr absl::Duration kSpoolRetry = absl::Seconds(1);

}  // namespace

void Outbox::Add(v1::WorkerReport report) {
  report.set_sequence(++last_);
  bytes_ += Size(report);
  kept_.push_back(std::move(report));
}

std::optional<v1::WorkerReport> Outbox::Next() {
  if (!HasNext()) return std::nullopt;
  const uint64_t first = last_ + 1 - kept_.size();
  return kept_[next_++ - first];
}

void Outbox::Acknowledge(uint64_t sequence) {
  while (!kept_.empty() && kept_.front().sequence() <= sequence) {
    bytes_ -= Size(kept_.front());
    kept_.pop_front();
  }
  next_ = std::max(next_, std::min(sequence, last_) + 1);
}

std::vector<std::string> Outbox::After(uint64_t sequence) const {
  std::vector<std::string> reports;
  for (const v1::WorkerReport& report : kept_) {
    if (report.sequence() > sequence) reports.push_back(report.SerializeAsString());
  }
  return reports;
}

bool Outbox::Thin() {
  bool thinned = false;
  bool take = false;
  for (v1::WorkerReport& report : kept_) {
    if (!report.has_step()) continue;
    take = !take;
    if (!take) continue;
    bytes_ -= Size(report);
    report.clear_step();
    bytes_ += Size(report);
    thinned = true;
  }
  return thinned;
}

void Outbox::Rewind(uint64_t acknowledged) {
  Acknowledge(acknowledged);
  next_ = last_ + 1 - kept_.size();
}

void SpooledOutbox::Settle() {
  settle_ = last();
  unspooled_ = 0;
}

SpoolWork SpooledOutbox::NextWork(absl::Time now, bool attached, absl::Duration timeout,
                                  uint64_t through, size_t limit) {
  const bool settling = settle_ > spooled_ && !empty();
  if (attached && !settling) {
    const bool told = empty() && through > 0;
    return {.kind = told ? SpoolWork::Kind::kRemove : SpoolWork::Kind::kNothing};
  }
  const absl::Time due = std::max(away_since_ + timeout, spooled_at_ + kSpoolPause);
  if (!flushing_ && !settling && now < due) return {.again = std::max(due, retry_at_)};
  if (now < retry_at_) {
    // A caller of AwaitAcknowledged need not wait any longer.
    unspooled_ = last();
    return {.again = retry_at_};
  }
  spooled_at_ = now;
  bool replace = false;
  while (bytes() > limit && Thin()) replace = true;
  return {.kind = SpoolWork::Kind::kWrite,
          .reports = After(replace ? 0 : through),
          .last = last(),
          .replace = replace,
          .sync = flushing_,
          .was_well = retry_at_ == absl::InfinitePast()};
}

void SpooledOutbox::Written(const SpoolWork& work, bool ok, absl::Time now) {
  retry_at_ = ok ? absl::InfinitePast() : now + kSpoolRetry;
  if (!ok) {
    unspooled_ = work.last;
    return;
  }
  spooled_ = work.last;
  if (work.sync) flushed_ = work.last;
}

ReportSpool::ReportSpool(const ReportSpoolOptions& options, const v1::WorkerIdentity& worker)
    : options_(options), worker_(worker.SerializeAsString()) {}

absl::Status ReportSpool::Add(const std::vector<std::string>& reports, uint64_t through) {
  const absl::Status status =
      written_ ? AppendToSpool(options_.path, reports)
               : WriteSpool(options_.path, {.worker = worker_, .reports = reports});
  if (!status.ok()) {
    Reset();
    return Annotate(status, "reports cannot be kept for the coordinator");
  }
  written_ = true;
  through_ = through;
  return absl::OkStatus();
}

absl::Status ReportSpool::Sync() { return written_ ? SyncSpool(options_.path) : absl::OkStatus(); }

void ReportSpool::Reset() {
  written_ = false;
  through_ = 0;
}

void ReportSpool::Remove() {
  unlink(options_.path.c_str());
  Reset();
}

}  // namespace muster::control
