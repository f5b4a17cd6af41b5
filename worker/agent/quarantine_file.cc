#include "worker/agent/quarantine_file.h"

#include <spdlog/spdlog.h>
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

// Slot, process number, start time, generation, rank, incarnation and job, with tabs between. The
// last two are escaped as in C.
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

}  // namespace muster::agent
