#include "common/spool/spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/private_directory.h"
#include "common/status/status.h"

namespace muster {
namespace {

constexpr char kMagic[] = "muster-spool-1\n";
constexpr size_t kMagicBytes = sizeof(kMagic) - 1;
constexpr size_t kHeaderBytes = 12;
// The largest length. Every report is smaller; a larger number is not a valid length.
constexpr uint32_t kMaxRecord = 16 << 20;

// FNV-1a: detects incomplete writes, not deliberate changes.
uint64_t Checksum(const char* data, size_t size) {
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < size; ++i) {
    hash = (hash ^ static_cast<unsigned char>(data[i])) * 1099511628211u;
  }
  return hash;
}

void AppendRecord(const std::string& payload, std::string* out) {
  const auto size = static_cast<uint32_t>(payload.size());
  const uint64_t sum = Checksum(payload.data(), payload.size());
  char header[kHeaderBytes];
  memcpy(header, &size, sizeof(size));
  memcpy(header + sizeof(size), &sum, sizeof(sum));
  out->append(header, kHeaderBytes);
  out->append(payload);
}

absl::Status ErrnoOf(const std::string& what, const std::string& path) {
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat(what, " ", path));
}

// Writes all bytes, and closes `fd`.
absl::Status WriteAll(int fd, const std::string& bytes, const std::string& path) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = write(fd, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const absl::Status status = ErrnoOf("write", path);
      // A partial record would hide the records after it.
      const off_t end = lseek(fd, 0, SEEK_END);
      if (end >= static_cast<off_t>(done)) (void)!ftruncate(fd, end - static_cast<off_t>(done));
      close(fd);
      return status;
    }
    done += count;
  }
  close(fd);
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteSpool(const std::string& path, const Spooled& spooled) {
  std::string bytes = kMagic;
  AppendRecord(spooled.worker, &bytes);
  for (const std::string& report : spooled.reports) AppendRecord(report, &bytes);
  return files::WritePrivately(path, bytes);
}

absl::Status AppendToSpool(const std::string& path, const std::vector<std::string>& reports) {
  std::string bytes;
  for (const std::string& report : reports) AppendRecord(report, &bytes);
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return ErrnoOf("open", path);
  return WriteAll(fd, bytes, path);
}

absl::Status SyncSpool(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoOf("open", path);
  const absl::Status status = fdatasync(fd) == 0 ? absl::OkStatus() : ErrnoOf("sync", path);
  close(fd);
  return status;
}

absl::StatusOr<Spooled> ReadSpool(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, files::ReadFile(path));
  if (bytes.compare(0, kMagicBytes, kMagic) != 0) {
    return absl::DataLossError(absl::StrCat(path, " is not a file of a worker's reports"));
  }
  std::vector<std::string> records;
  for (size_t at = kMagicBytes; at + kHeaderBytes <= bytes.size();) {
    uint32_t size = 0;
    uint64_t sum = 0;
    memcpy(&size, bytes.data() + at, sizeof(size));
    memcpy(&sum, bytes.data() + at + sizeof(size), sizeof(sum));
    at += kHeaderBytes;
    if (size > kMaxRecord || at + size > bytes.size() || Checksum(bytes.data() + at, size) != sum) {
      break;
    }
    records.push_back(bytes.substr(at, size));
    at += size;
  }
  if (records.empty()) {
    return absl::DataLossError(absl::StrCat(path, " does not say whose reports it holds"));
  }
  Spooled spooled{.worker = std::move(records.front())};
  spooled.reports.assign(std::make_move_iterator(records.begin() + 1),
                         std::make_move_iterator(records.end()));
  return spooled;
}

}  // namespace muster
