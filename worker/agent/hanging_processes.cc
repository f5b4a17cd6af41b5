#include "worker/agent/hanging_processes.h"

#include <spdlog/spdlog.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files/files.h"
#include "common/files/private_directory.h"
#include "common/process/process_stat.h"
#include "common/status/status.h"

namespace muster::agent {
namespace {

// The fields of a line: slot, process number, start time, generation, rank, incarnation and job,
// with tabs between them. Incarnation and job are escaped as in C.
constexpr size_t kFields = 7;

std::string ToLine(const HangingProcess& process) {
  const WorkerId& worker = process.worker.worker;
  return absl::StrCat(process.slot, "\t", process.worker.pid, "\t", process.start_time, "\t",
                      worker.generation, "\t", worker.rank, "\t", absl::CEscape(worker.incarnation),
                      "\t", absl::CEscape(worker.job), "\n");
}

std::optional<HangingProcess> FromLine(const std::string& line) {
  const std::vector<std::string> fields = absl::StrSplit(line, '\t');
  if (fields.size() != kFields) return std::nullopt;
  HangingProcess process;
  WorkerId& worker = process.worker.worker;
  const bool whole = absl::SimpleAtoi(fields[0], &process.slot) &&
                     absl::SimpleAtoi(fields[1], &process.worker.pid) && process.worker.pid > 0 &&
                     absl::SimpleAtoi(fields[2], &process.start_time) &&
                     absl::SimpleAtoi(fields[3], &worker.generation) &&
                     absl::SimpleAtoi(fields[4], &worker.rank) &&
                     absl::CUnescape(fields[5], &worker.incarnation) &&
                     absl::CUnescape(fields[6], &worker.job);
  if (!whole) return std::nullopt;
  return process;
}

// The time between two looks at processes of former agents.
constexpr absl::Duration kLook = absl::Seconds(1);

void Log(uint32_t slot, const RunningWorker& worker) {
  spdlog::error("{} (process {}) does not end although it was killed: slot {} is not used",
                worker.worker.ToString(), worker.pid, slot);
}

}  // namespace

bool StillHangs(const HangingProcess& hanging) {
  const auto stat = process::ReadProcessStat(static_cast<pid_t>(hanging.worker.pid));
  if (!stat.ok()) return !absl::IsNotFound(stat.status());
  return stat->start_time == hanging.start_time && !stat->Ended();
}

QuarantineFile::QuarantineFile(const std::string& directory)
    : path_(directory.empty() ? "" : files::JoinPath(directory, "quarantine")) {}

std::vector<HangingProcess> QuarantineFile::Read() const {
  std::vector<HangingProcess> processes;
  if (path_.empty()) return processes;
  const auto text = files::ReadFile(path_);
  if (absl::IsNotFound(text.status())) return processes;
  if (!text.ok()) {
    spdlog::error("{}: it is not known in which slots processes of a former agent hang",
                  Message(text.status()));
    return processes;
  }
  const std::vector<std::string> lines = absl::StrSplit(*text, '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    const std::optional<HangingProcess> process = FromLine(line);
    if (process.has_value()) {
      processes.push_back(*process);
    } else {
      spdlog::error(
          "{}: '{}' does not name a process that hangs; look for muster-worker in state D", path_,
          absl::CEscape(line.substr(0, 200)));
    }
  }
  return processes;
}

absl::Status QuarantineFile::Write(const std::vector<HangingProcess>& processes) const {
  if (path_.empty()) return absl::OkStatus();
  if (processes.empty()) {
    const bool gone = unlink(path_.c_str()) == 0 || errno == ENOENT;
    return gone ? absl::OkStatus() : files::ErrnoStatus(errno, "remove", path_);
  }
  std::string text;
  for (const HangingProcess& process : processes) absl::StrAppend(&text, ToLine(process));
  return files::WritePrivately(path_, text);
}

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
  // A process without a start time has just ended, and its end will be seen soon.
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
