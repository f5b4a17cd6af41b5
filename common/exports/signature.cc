#include "common/exports/signature.h"

#include <sys/stat.h>
#include <sys/xattr.h>

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace muster::exports {
namespace {

constexpr char kAttribute[] = "user.muster.writer";

// With the size and the time of the last change of its bytes, so that a changed file does not have
// it any more. Empty: the file cannot be looked at.
std::string SignatureOf(const std::string& path, const std::string& writer) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) return "";
  return absl::StrCat("1 ", info.st_size, " ", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, " ",
                      writer);
}

}  // namespace

void Sign(const std::string& path, const std::string& writer) {
  if (writer.empty()) return;
  const std::string signature = SignatureOf(path, writer);
  (void)lsetxattr(path.c_str(), kAttribute, signature.data(), signature.size(), 0);
}

bool IsSignedBy(const std::string& path, const std::string& writer) {
  if (writer.empty()) return false;
  const std::string expected = SignatureOf(path, writer);
  std::string found(expected.size() + 1, '\0');
  const ssize_t size = lgetxattr(path.c_str(), kAttribute, found.data(), found.size());
  return !expected.empty() && size == static_cast<ssize_t>(expected.size()) &&
         found.compare(0, expected.size(), expected) == 0;
}

std::string WriterOf(const std::string& job_id, int64_t command) {
  return absl::StrCat("command ", command, " of ", job_id);
}

}  // namespace muster::exports
