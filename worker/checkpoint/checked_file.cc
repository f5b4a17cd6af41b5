#include "worker/checkpoint/checked_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/activity/activity.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/manifest/tensor_reader.h"
#include "worker/device/memory.h"

namespace muster::checkpoint {
namespace {

constexpr int64_t kBlock = files::kHashedBlock;

}  // namespace

CheckedFile::CheckedFile(const std::string& directory, const manifest::FileRecord& record)
    : path_(files::JoinPath(directory, record.name)), record_(record) {}

void CheckedFile::Want(Range range) {
  if (range.bytes == 0) return;
  const int64_t last = (range.offset + range.bytes - 1) / kBlock;
  for (int64_t block = range.offset / kBlock; block <= last; ++block) wanted_.insert(block);
  ranges_.push_back(std::move(range));
}

void CheckedFile::Check(int64_t block) {
  const int64_t blocks = std::ssize(record_.blocks);
  if (block == Block::kWholeFile) {
    for (int64_t each = 0; each < blocks; ++each) wanted_.insert(each);
  } else if (block >= 0 && block < blocks) {
    wanted_.insert(block);
  }
}

void CheckedFile::Distribute(int64_t block, const char* data, int64_t bytes) {
  const int64_t begin = block * kBlock;
  const int64_t end = begin + bytes;
  while (first_ < ranges_.size() && ranges_[first_].offset + ranges_[first_].bytes <= begin) {
    ++first_;
  }
  for (size_t i = first_; i < ranges_.size() && ranges_[i].offset < end; ++i) {
    const Range& range = ranges_[i];
    const int64_t from = std::max(range.offset, begin);
    const int64_t size = std::min(range.offset + range.bytes, end) - from;
    if (size <= 0 || !range.to.defined()) continue;
    device::CopyFromHost(range.to, range.begin + from - range.offset, data + (from - begin), size);
  }
}

std::map<int64_t, absl::Status> CheckedFile::ReadFrom(int fd) {
  std::map<int64_t, absl::Status> errors;
  std::vector<char> buffer(std::min<int64_t>(kBlock, record_.size));
  for (const int64_t block : wanted_) {
    const int64_t begin = block * kBlock;
    const int64_t bytes = std::min<int64_t>(kBlock, static_cast<int64_t>(record_.size) - begin);
    const absl::Status read = manifest::ReadAt(fd, begin, buffer.data(), bytes, path_);
    if (!read.ok()) {
      errors[block] = read;
      return errors;
    }
    const absl::Status checked = manifest::CheckBlock(record_, block, buffer.data(), bytes, path_);
    if (!checked.ok()) {
      errors[block] = checked;
      continue;
    }
    Distribute(block, buffer.data(), bytes);
    activity::Moved();
  }
  return errors;
}

std::map<int64_t, absl::Status> CheckedFile::Read() {
  if (wanted_.empty()) return {};
  std::sort(ranges_.begin(), ranges_.end(),
            [](const Range& a, const Range& b) { return a.offset < b.offset; });
  first_ = 0;
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {{Block::kWholeFile, files::ErrnoStatus(errno, "open", path_)}};
  auto errors = ReadFrom(fd);
  close(fd);
  return errors;
}

}  // namespace muster::checkpoint
