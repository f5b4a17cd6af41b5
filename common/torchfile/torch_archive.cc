#include "common/torchfile/torch_archive.h"

#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/filekind/file_kind.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"
#include "common/torchfile/pickle_reader.h"
#include "common/torchfile/zip_format.h"

namespace muster::torchfile {
namespace {

absl::Status Bad(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("not a file of torch.save: ", what));
}

// Bytes [offset, offset + size) of the file as little-endian numbers. Threading: const.
class Fields {
 public:
  // Empty if the bytes are not all in the file.
  Fields(const files::MappedFile& file, uint64_t offset, uint64_t size)
      : size_(offset <= file.size() && size <= file.size() - offset ? size : 0),
        data_(size_ > 0 ? file.data() + offset : nullptr) {}

  bool ok() const { return size_ > 0; }
  uint64_t U16(uint64_t at) const { return Number(at, 2); }
  uint64_t U32(uint64_t at) const { return Number(at, 4); }
  uint64_t U64(uint64_t at) const { return Number(at, 8); }
  std::string Text(uint64_t at, uint64_t size) const {
    if (at > size_ || size > size_ - at) return "";
    return std::string(reinterpret_cast<const char*>(data_ + at), size);
  }

 private:
  // The number at `at`; 0 beyond the end.
  uint64_t Number(uint64_t at, int bytes) const {
    uint64_t value = 0;
    if (at > size_ || size_ - at < static_cast<uint64_t>(bytes)) return 0;
    for (int i = 0; i < bytes; ++i) value |= static_cast<uint64_t>(data_[at + i]) << (8 * i);
    return value;
  }

  const uint64_t size_;
  const uint8_t* const data_;
};

struct Directory {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t members = 0;
};

absl::StatusOr<Directory> FindDirectory(const files::MappedFile& file) {
  // The last record has no comment: neither PyTorch nor Muster writes one.
  if (file.size() < kEndBytes) return Bad(absl::StrCat("it has ", file.size(), " bytes"));
  const uint64_t at = file.size() - kEndBytes;
  const Fields end(file, at, kEndBytes);
  if (end.U32(0) != kEndOfDirectory) return Bad("it does not end as a ZIP archive does");
  Directory directory{.offset = end.U32(16), .bytes = end.U32(12), .members = end.U16(10)};
  if (at < kLocatorBytes) return directory;
  const Fields locator(file, at - kLocatorBytes, kLocatorBytes);
  if (locator.U32(0) != kLocatorOfEnd64) return directory;
  const Fields end64(file, locator.U64(8), kEnd64Bytes);
  if (!end64.ok() || end64.U32(0) != kEndOfDirectory64) return Bad("its ZIP64 record is not there");
  return Directory{.offset = end64.U64(48), .bytes = end64.U64(40), .members = end64.U64(32)};
}

// The numbers of a directory entry, some of which are in its ZIP64 field.
struct Entry {
  uint64_t bytes = 0;
  uint64_t stored = 0;
  uint64_t header = 0;
};

absl::Status ReadZip64(const Fields& fields, uint64_t at, uint64_t end, Entry* entry) {
  while (end - at >= kExtraHeader) {
    const uint64_t id = fields.U16(at);
    const uint64_t size = fields.U16(at + 2);
    at += kExtraHeader;
    if (size > end - at) return Bad("an extra field is too long");
    if (id == kZip64Extra) {
      uint64_t field = at;
      for (uint64_t* const number : {&entry->bytes, &entry->stored, &entry->header}) {
        if (*number != kSee64) continue;
        if (field + 8 > at + size) return Bad("a ZIP64 field is too short");
        *number = fields.U64(field);
        field += 8;
      }
      return absl::OkStatus();
    }
    at += size;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status TorchArchive::ReadMembers() {
  ASSIGN_OR_RETURN(const Directory directory, FindDirectory(file_));
  const Fields all(file_, directory.offset, directory.bytes);
  if (!all.ok()) return Bad("its list of members is not there");
  std::string folder;
  uint64_t at = 0;
  for (uint64_t i = 0; i < directory.members; ++i) {
    if (at >= directory.bytes || directory.bytes - at < kDirectoryEntryBytes ||
        all.U32(at) != kDirectoryEntry) {
      return Bad(absl::StrCat("its list of members ends after ", i, " of ", directory.members));
    }
    const uint64_t name_bytes = all.U16(at + 28);
    const uint64_t extra_bytes = all.U16(at + 30);
    const uint64_t entry_bytes = kDirectoryEntryBytes + name_bytes + extra_bytes + all.U16(at + 32);
    if (entry_bytes > directory.bytes - at) return Bad("a member is cut off");
    const std::string name = all.Text(at + kDirectoryEntryBytes, name_bytes);
    const uint64_t extra = at + kDirectoryEntryBytes + name_bytes;
    Entry entry{all.U32(at + 24), all.U32(at + 20), all.U32(at + 42)};
    RETURN_IF_ERROR(ReadZip64(all, extra, extra + extra_bytes, &entry));
    if (all.U16(at + 10) != 0 || entry.bytes != entry.stored) {
      return Bad(absl::StrCat("member '", name, "' is compressed"));
    }
    const Fields header(file_, entry.header, kLocalHeaderBytes);
    if (!header.ok() || header.U32(0) != kLocalHeader) {
      return Bad(absl::StrCat("member '", name, "' is not where the list says"));
    }
    const uint64_t data = entry.header + kLocalHeaderBytes + header.U16(26) + header.U16(28);
    if (data > file_.size() || entry.bytes > file_.size() - data) {
      return Bad(absl::StrCat("member '", name, "' reaches beyond the end of the file"));
    }
    // All members lie in one folder, whose name does not matter.
    const size_t slash = name.find('/');
    if (slash == std::string::npos) return Bad(absl::StrCat("member '", name, "' is in no folder"));
    if (i == 0) folder = name.substr(0, slash + 1);
    if (name.substr(0, slash + 1) != folder) {
      return Bad(absl::StrCat("member '", name, "' is not in '", folder, "'"));
    }
    if (!members_.emplace(name.substr(slash + 1), Extent{data, entry.bytes}).second) {
      return Bad(absl::StrCat("member '", name, "' is there twice"));
    }
    at += entry_bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<TorchArchive> TorchArchive::Open(const std::string& path) {
  ASSIGN_OR_RETURN(files::MappedFile file, files::MappedFile::Open(path));
  RETURN_IF_ERROR(filekind::CheckKind(path, file.data(), file.size(),
                                      filekind::Wanted::kOptimizerState));
  TorchArchive archive(std::move(file));
  RETURN_IF_ERROR(Annotate(archive.ReadMembers(), path));
  const auto text = [&](const Extent& extent) {
    return std::string_view(reinterpret_cast<const char*>(archive.data(extent)), extent.bytes);
  };
  const auto order = archive.members_.find("byteorder");
  if (order != archive.members_.end() && text(order->second) != "little") {
    return Annotate(Bad("its numbers are not little-endian"), path);
  }
  const auto pickle = archive.members_.find("data.pkl");
  if (pickle == archive.members_.end()) return Annotate(Bad("it has no data.pkl"), path);
  auto document = ReadPickle(text(pickle->second));
  if (!document.ok()) return Annotate(document.status(), path);
  archive.document_ = *std::move(document);
  return archive;
}

absl::StatusOr<TorchArchive::Extent> TorchArchive::Storage(const TensorValue& tensor) const {
  const auto found = members_.find("data/" + tensor.storage);
  if (found == members_.end()) {
    return Bad(absl::StrCat("it has no storage '", tensor.storage, "'"));
  }
  uint64_t bytes = 0;
  if (!__builtin_mul_overflow(static_cast<uint64_t>(tensor.storage_elements),
                              safetensors::ElementSize(tensor.dtype), &bytes) &&
      bytes <= found->second.bytes) {
    return Extent{found->second.offset, bytes};
  }
  return Bad(absl::StrCat("storage '", tensor.storage, "' has ", found->second.bytes,
                          " bytes, expected ", tensor.storage_elements, " elements"));
}

}  // namespace muster::torchfile
