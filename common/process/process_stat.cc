#include "common/process/process_stat.h"

#include <sstream>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/status/status.h"

namespace muster::process {

bool ProcessStat::Ended() const {
  return state == 'X' || state == 'x' || (state == 'Z' && threads <= 1);
}

std::optional<ProcessStat> ParseProcessStat(const std::string& text) {
  // The second field is the program's name in parentheses, which may contain anything.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  ProcessStat stat;
  std::string skipped;
  fields >> stat.state;  // Field 3.
  for (int field = 4; field < 20; ++field) fields >> skipped;
  fields >> stat.threads >> skipped >> stat.start_time;
  if (fields.fail()) return std::nullopt;
  return stat;
}

absl::StatusOr<ProcessStat> ReadProcessStat(pid_t pid) {
  const std::string path = absl::StrCat("/proc/", pid, "/stat");
  ASSIGN_OR_RETURN(const std::string text, files::ReadFile(path));
  const std::optional<ProcessStat> stat = ParseProcessStat(text);
  if (!stat.has_value()) return absl::DataLossError(absl::StrCat(path, " holds '", text, "'"));
  return *stat;
}

}  // namespace muster::process
