#include "worker/agent/hanging_processes.h"

#include <spdlog/spdlog.h>
#include <sys/types.h>

#include "absl/status/status.h"
#include "common/process/process_stat.h"
#include "common/status/status.h"

namespace muster::agent {
namespace {

// The time between two looks at processes of former agents.
constexpr absl::Duration kLook = absl::Seconds(1);

void Log(uint32_t slot, const RunningWorker& worker) {
  spdlog::error("{} (process {}) does not end although it was killed: slot {} is not used",
                worker.worker.ToString(), worker.pid, slot);
}

}  // namespace

std::vector<HangingProcess> HangingProcesses::Restore(absl::Time now) {
  std::vector<HangingProcess> found;
  const std::vector<HangingProcess> left = file_.Read();
  for (const HangingProcess& process : left) {
    if (!StillHangs(process)) continue;
    Log(process.slot, process.worker);
    processes_[process.worker.worker] = Entry{.process = process, .former = true};
    found.push_back(process);
  }
  if (processes_.size() < left.size()) Keep();
  if (!processes_.empty()) look_at_ = now + kLook;
  return found;
}

void HangingProcesses::Add(uint32_t slot, const RunningWorker& worker) {
  Log(slot, worker);
  // If there is no start time, the process has just ended, and its end will be seen in a moment.
  const auto stat = process::ReadProcessStat(static_cast<pid_t>(worker.pid));
  const HangingProcess process = {
      .slot = slot, .worker = worker, .start_time = stat.ok() ? stat->start_time : 0};
  processes_[worker.worker] = Entry{.process = process};
  Keep();
}

void HangingProcesses::Remove(const WorkerId& worker) {
  spdlog::info("{} has ended: its slot can be used again", worker.ToString());
  processes_.erase(worker);
  Keep();
}

std::vector<WorkerId> HangingProcesses::FindEnded(absl::Time now) {
  std::vector<WorkerId> ended;
  bool more = false;
  for (const auto& [worker, entry] : processes_) {
    if (!entry.former) continue;
    if (StillHangs(entry.process)) {
      more = true;
    } else {
      ended.push_back(worker);
    }
  }
  look_at_ = more ? now + kLook : absl::InfiniteFuture();
  return ended;
}

void HangingProcesses::Keep() const {
  std::vector<HangingProcess> processes;
  for (const auto& [worker, entry] : processes_) processes.push_back(entry.process);
  if (const absl::Status kept = file_.Write(processes); !kept.ok()) {
    spdlog::error("the next agent here cannot know which processes hang: {}", Message(kept));
  }
}

}  // namespace muster::agent
