#include "common/downloads/downloads.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"

namespace muster {

std::string DownloadPath(const std::string& folder, const std::string& job_id, uint64_t command) {
  const bool plain = !job_id.empty() && job_id.size() <= 63 &&
                     std::all_of(job_id.begin(), job_id.end(), [](char c) {
                       return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
                     });
  if (folder.empty() || !plain) return "";
  return files::JoinPath(folder, absl::StrCat(job_id, "-", command));
}

}  // namespace muster
