// Reads the files of torch.save (see torch_file.h). The file may be hostile.
#ifndef MUSTER_COMMON_TORCHFILE_TORCH_ARCHIVE_H_
#define MUSTER_COMMON_TORCHFILE_TORCH_ARCHIVE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "common/files/mapped_file.h"
#include "common/torchfile/pickle_document.h"

namespace muster::torchfile {

// A mapped file. Movable. Threading: const.
class TorchArchive {
 public:
  // Reads the list of members, and the pickle. Errors begin with the path. INVALID_ARGUMENT: not a
  // ZIP archive of stored files with a pickle, or of the other byte order. Other errors: those of
  // ReadPickle and MappedFile.
  static absl::StatusOr<TorchArchive> Open(const std::string& path);

  const PickleDocument& document() const { return document_; }
  const std::string& path() const { return file_.path(); }

  // The place of a storage's elements in the file.
  struct Extent {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  // The place of a tensor's whole storage. INVALID_ARGUMENT: the archive has no such storage, or
  // the storage is shorter than the tensor says.
  absl::StatusOr<Extent> Storage(const TensorValue& tensor) const;

  const uint8_t* data(const Extent& extent) const { return file_.data() + extent.offset; }

 private:
  explicit TorchArchive(files::MappedFile file) : file_(std::move(file)) {}
  absl::Status ReadMembers();

  files::MappedFile file_;
  std::map<std::string, Extent> members_;  // by name, without the archive's folder
  PickleDocument document_;
};

}  // namespace muster::torchfile

#endif  // MUSTER_COMMON_TORCHFILE_TORCH_ARCHIVE_H_
