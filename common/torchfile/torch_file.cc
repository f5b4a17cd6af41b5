#include "common/torchfile/torch_file.h"

#include <zlib.h>

#include <string>
#include <utility>

#include "common/torchfile/zip_format.h"

namespace muster::torchfile {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr char kFolder[] = "archive/";

constexpr uint16_t kDate = 0x21;  // 1980-01-01, so that the same state gives the same bytes

class Bytes {
 public:
  Bytes& U16(uint64_t value) { return Number(value, 2); }
  Bytes& U32(uint64_t value) { return Number(value, 4); }
  Bytes& U64(uint64_t value) { return Number(value, 8); }
  Bytes& Text(const std::string& text) {
    bytes_ += text;
    return *this;
  }
  std::string Take() { return std::move(bytes_); }

 private:
  Bytes& Number(uint64_t value, int size) {
    for (int i = 0; i < size; ++i) bytes_ += static_cast<char>(value >> (8 * i));
    return *this;
  }
  std::string bytes_;
};

// Writes the fields that a local header and a directory entry share.
void Describe(uint32_t crc, const std::string& name, uint64_t extra, Bytes* bytes) {
  bytes->U16(kVersionNeeded).U16(0).U16(0).U16(0).U16(kDate);  // version, flags, method, time, date
  bytes->U32(crc).U32(kSee64).U32(kSee64).U16(name.size()).U16(extra);
}

}  // namespace

TorchFile::TorchFile(std::string pickle, const std::vector<uint64_t>& storage_bytes)
    : storages_(storage_bytes.size()) {
  const uint64_t pickle_bytes = pickle.size();
  // PyTorch takes the first member's folder as the archive's name.
  Add("data.pkl", std::move(pickle), pickle_bytes);
  // The archive has no ".format_version", from which PyTorch would conclude that its own writer
  // computed all positions.
  Add("byteorder", "little", 6);
  first_storage_ = members_.size();
  for (size_t i = 0; i < storages_; ++i) Add("data/" + std::to_string(i), "", storage_bytes[i]);
  Add("version", "3\n", 2);
  directory_ = size_;
  for (const Member& member : members_) {
    size_ += kDirectoryEntryBytes + member.name.size() + kDirectoryZip64Bytes;
  }
  size_ += kEnd64Bytes + kLocatorBytes + kEndBytes;
}

void TorchFile::Add(std::string name, std::string contents, uint64_t bytes) {
  Member member{kFolder + std::move(name), std::move(contents), bytes, size_, 0};
  const uint64_t unpadded =
      size_ + kLocalHeaderBytes + member.name.size() + kLocalZip64Bytes + kExtraHeader;
  member.data = (unpadded + kAlignment - 1) / kAlignment * kAlignment;
  size_ = member.data + bytes;
  members_.push_back(std::move(member));
}

std::vector<Fragment> TorchFile::Fragments(const std::vector<uint32_t>& crcs) const {
  std::vector<Fragment> fragments;
  Bytes directory;
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    const bool is_storage = i >= first_storage_ && i < first_storage_ + storages_;
    const uint32_t crc = is_storage
                             ? crcs[i - first_storage_]
                             : crc32(0, reinterpret_cast<const Bytef*>(member.contents.data()),
                                     static_cast<uInt>(member.contents.size()));
    const uint64_t extra = member.data - member.header - kLocalHeaderBytes - member.name.size();
    const uint64_t padding = extra - kLocalZip64Bytes - kExtraHeader;
    Bytes header;
    header.U32(kLocalHeader);
    Describe(crc, member.name, extra, &header);
    header.Text(member.name);
    header.U16(kZip64Extra).U16(16).U64(member.bytes).U64(member.bytes);
    header.U16(kPaddingExtra).U16(padding).Text(std::string(padding, 'Z'));
    header.Text(member.contents);
    fragments.push_back({member.header, header.Take()});

    directory.U32(kDirectoryEntry).U16(kVersionNeeded);
    Describe(crc, member.name, kDirectoryZip64Bytes, &directory);
    // Comment, disk, internal and external attributes; the header's position.
    directory.U16(0).U16(0).U16(0).U32(0).U32(kSee64).Text(member.name);
    directory.U16(kZip64Extra).U16(24).U64(member.bytes).U64(member.bytes).U64(member.header);
  }
  const uint64_t end = size_ - kEnd64Bytes - kLocatorBytes - kEndBytes;
  const uint64_t directory_bytes = end - directory_;
  directory.U32(kEndOfDirectory64).U64(kEnd64Bytes - 12).U16(kVersionNeeded).U16(kVersionNeeded);
  directory.U32(0).U32(0).U64(members_.size()).U64(members_.size());
  directory.U64(directory_bytes).U64(directory_);
  directory.U32(kLocatorOfEnd64).U32(0).U64(end).U32(1);
  directory.U32(kEndOfDirectory).U16(0).U16(0).U16(0xffff).U16(0xffff);
  directory.U32(kSee64).U32(kSee64).U16(0);
  fragments.push_back({directory_, directory.Take()});
  return fragments;
}

}  // namespace muster::torchfile
