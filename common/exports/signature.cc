#include "common/exports/signature.h"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files/disk.h"
#include "common/files/files.h"

namespace muster::exports {
namespace {

namespace fs = std::filesystem;

constexpr char kAttribute[] = "user.muster.writer";
constexpr char kSuffix[] = ".tmp";  // of temporary names

// The signature has the size and the time of the last change of the bytes, so that it does not fit
// a changed file. Empty: the file cannot be examined.
std::string SignatureOf(const std::string& path, const std::string& writer) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) return "";
  return absl::StrCat("1 ", info.st_size, " ", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, " ",
                      writer);
}

// The common prefix of the names of all generations of a job.
std::string Prefix(const std::string& path, const std::string& job_id) {
  return absl::StrCat(".", fs::path(path).filename().string(), ".", job_id, "-g");
}

// Returns whether the text is a UUID as of NewUuid, with or without a number, by which two
// processes of one incarnation differ. A shorter rule would not find the beginning of the
// incarnation, because ids of jobs may contain "-g2-".
bool IsIncarnation(const std::string& text) {
  constexpr size_t kUuid = 36;
  if (text.size() < kUuid) return false;
  for (size_t i = 0; i < kUuid; ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    const bool hex = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
    if (dash ? text[i] != '-' : !hex) return false;
  }
  if (text.size() == kUuid) return true;
  return text[kUuid] == '-' && text.size() > kUuid + 1 &&
         text.find_first_not_of("0123456789", kUuid + 1) == std::string::npos;
}

// The generation in a name that begins with `prefix`; nothing for a name of another form.
std::optional<int64_t> GenerationOf(const std::string& name, const std::string& prefix) {
  if (!absl::StartsWith(name, prefix) || !absl::EndsWith(name, kSuffix)) return std::nullopt;
  const size_t end = name.size() - (sizeof(kSuffix) - 1);
  if (end < prefix.size()) return std::nullopt;
  const std::string middle = name.substr(prefix.size(), end - prefix.size());
  int64_t generation = 0;
  const auto [next, error] =
      std::from_chars(middle.data(), middle.data() + middle.size(), generation);
  const std::string digits = middle.substr(0, next - middle.data());
  if (error != std::errc() || digits != absl::StrCat(generation) || generation < 0) {
    return std::nullopt;
  }
  const std::string rest = middle.substr(digits.size());
  if (rest.empty() || rest[0] != '-' || !IsIncarnation(rest.substr(1))) return std::nullopt;
  return generation;
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

std::string TemporaryPath(const std::string& path, const std::string& job_id, int64_t generation,
                          const std::string& incarnation) {
  return files::JoinPath(files::ParentDirectory(path),
                         absl::StrCat(Prefix(path, job_id), generation, "-", incarnation, kSuffix));
}

absl::StatusOr<std::vector<std::string>> RemoveStale(const std::string& path,
                                                     const std::string& job_id,
                                                     int64_t generation) {
  const std::string folder = files::ParentDirectory(path);
  const std::string prefix = Prefix(path, job_id);
  std::vector<std::string> stale;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const auto found = GenerationOf(name, prefix);
    if (found.has_value() && *found < generation) stale.push_back(name);
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return files::ErrnoStatus(error.value(), "list", folder);
  }
  std::sort(stale.begin(), stale.end());
  for (const std::string& name : stale) {
    const std::string file = files::JoinPath(folder, name);
    fs::remove_all(file, error);
    if (error) return files::ErrnoStatus(error.value(), "remove", file);
  }
  return stale;
}

}  // namespace muster::exports
