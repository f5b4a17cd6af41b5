#include "common/certs/deny_list.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/certs/certificate.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/problems/problems.h"
#include "common/status/status.h"

namespace muster::certs {
namespace {

constexpr off_t kMaxBytes = 16 << 20;
constexpr size_t kShown = 3;
constexpr char kRevokedList[] = "list of revoked certificates";

// FAILED_PRECONDITION, with the serial numbers that were revoked before and are not in the file.
absl::Status Gone(const std::set<std::string>& before, const std::set<std::string>& now) {
  std::vector<std::string> gone;
  std::set_difference(before.begin(), before.end(), now.begin(), now.end(),
                      std::back_inserter(gone));
  if (gone.empty()) return absl::OkStatus();
  const size_t count = gone.size();
  gone.resize(std::min(count, kShown));
  return absl::FailedPreconditionError(absl::StrCat(
      count, " serial numbers that were revoked are gone from it (", absl::StrJoin(gone, ", "),
      count > kShown ? absl::StrCat(" and ", count - kShown, " more") : "",
      "); they stay revoked while this program runs. Put the whole list in its place, under "
      "another name first, and rename that"));
}

}  // namespace

ParsedDenyList ParseDenyList(const std::string& text) {
  ParsedDenyList parsed;
  Problems wrong;
  int number = 0;
  for (const absl::string_view whole : absl::StrSplit(text, '\n')) {
    ++number;
    const std::string line(absl::StripAsciiWhitespace(whole.substr(0, whole.find('#'))));
    if (line.empty()) continue;
    const auto serial = NormalSerial(line);
    if (serial.ok()) {
      parsed.serials.insert(*serial);
    } else {
      wrong.Add(absl::StrCat("line ", number, ": ", serial.status().message()));
    }
  }
  if (wrong.count() > 0) parsed.problem = absl::InvalidArgumentError(wrong.Text());
  return parsed;
}

bool DenyList::Version::operator==(const Version& other) const {
  return device == other.device && inode == other.inode && size == other.size &&
         modified.tv_sec == other.modified.tv_sec && modified.tv_nsec == other.modified.tv_nsec;
}

DenyList::DenyList(std::string path, Options options)
    : path_(std::move(path)), options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<DenyList>> DenyList::Load(const std::string& path, Options options) {
  std::unique_ptr<DenyList> list(new DenyList(path, std::move(options)));
  const absl::Time now = list->options_.now();
  absl::MutexLock lock(&list->mutex_);
  RETURN_IF_ERROR(list->Refresh());
  list->looked_ = now;
  return list;
}

std::unique_ptr<DenyList> DenyList::None() {
  return std::unique_ptr<DenyList>(new DenyList("", {}));
}

bool DenyList::Has(const std::string& serial) const {
  if (path_.empty()) return false;
  const absl::Time now = options_.now();
  absl::Status news;
  bool has = false;
  {
    absl::MutexLock lock(&mutex_);
    if (now - looked_ >= kInterval) {
      looked_ = now;
      const absl::Status read = Refresh();
      if (read != told_) news = read;
      told_ = read;
    }
    has = serials_.count(serial) > 0;
  }
  if (!news.ok()) options_.on_trouble(news);
  return has;
}

absl::StatusOr<DenyList::Version> DenyList::Look() const {
  struct stat status = {};
  if (stat(path_.c_str(), &status) != 0) {
    return Annotate(files::ErrnoStatus(errno, "read", path_), "--tls-revoked");
  }
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kRevokedList, " ", path_, " is not a regular file"));
  }
  if (status.st_size > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat(kRevokedList, " ", path_, " has ",
                                                   status.st_size, " bytes; allowed are ",
                                                   kMaxBytes));
  }
  return Version{status.st_dev, status.st_ino, status.st_size, status.st_mtim};
}

absl::Status DenyList::Refresh() const {
  ASSIGN_OR_RETURN(const Version version, Look());
  if (version == version_) return problem_;
  const auto text = files::ReadFile(path_);
  if (!text.ok()) return Annotate(text.status(), kRevokedList);
  ParsedDenyList parsed = ParseDenyList(*text);
  // The version before the read: the next look notices a change during the read.
  version_ = version;
  absl::Status problem = Gone(serials_, parsed.serials);
  if (problem.ok()) problem = parsed.problem;
  serials_.merge(parsed.serials);
  problem_ = Annotate(problem, absl::StrCat(kRevokedList, " ", path_));
  return problem_;
}

absl::Status AddToDenyList(const std::string& path, const std::set<std::string>& serials,
                           const std::string& comment) {
  auto text = files::ReadFile(path);
  bool changed = absl::IsNotFound(text.status());
  if (changed) {
    text = "# Serial numbers of certificates that count no more, one a line.\n";
  }
  RETURN_IF_ERROR(text.status());
  const ParsedDenyList before = ParseDenyList(*text);
  RETURN_IF_ERROR(Annotate(before.problem, absl::StrCat(kRevokedList, " ", path)));
  std::string added = *text;
  if (!added.empty() && added.back() != '\n') added += '\n';
  for (const std::string& serial : serials) {
    if (before.serials.count(serial) > 0) continue;
    absl::StrAppend(&added, serial, "  # ", comment, "\n");
    changed = true;
  }
  if (!changed) return absl::OkStatus();
  return files::WriteAtomically(path, added);
}

}  // namespace muster::certs
