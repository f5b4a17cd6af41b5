// The files of torch.save: a ZIP archive of stored (not compressed) files, one for each tensor's
// storage, and a pickle that refers to the storages. All positions are known before any tensor, so
// that many writers can write their parts of one file at the same time.
//
// Sources: PyTorch's caffe2/serialize/inline_container.h and the ZIP specification (PKWARE,
// APPNOTE.TXT 6.3.10, with ZIP64).
#ifndef MUSTER_COMMON_TORCHFILE_TORCH_FILE_H_
#define MUSTER_COMMON_TORCHFILE_TORCH_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace muster::torchfile {

// Bytes of the file that do not belong to a tensor.
struct Fragment {
  uint64_t offset = 0;
  std::string bytes;
};

// The positions of all parts of a file. Threading: const.
class TorchFile {
 public:
  // `pickle` refers to storages by the keys "0", "1" and so on, with `storage_bytes` each.
  TorchFile(std::string pickle, const std::vector<uint64_t>& storage_bytes);

  // The size of the whole file.
  uint64_t size() const { return size_; }
  // The beginning of each storage's bytes: a multiple of 64.
  uint64_t storage_offset(size_t storage) const { return members_[first_storage_ + storage].data; }

  // All bytes outside of storages, in order. `crcs`: the CRC-32 (zlib's) of each storage.
  std::vector<Fragment> Fragments(const std::vector<uint32_t>& crcs) const;

 private:
  // A file of the archive.
  struct Member {
    std::string name;
    std::string contents;  // empty: a storage's
    uint64_t bytes = 0;
    uint64_t header = 0;  // where its header begins
    uint64_t data = 0;    // where its contents begin
  };
  void Add(std::string name, std::string contents, uint64_t bytes);

  std::vector<Member> members_;
  size_t first_storage_ = 0;
  size_t storages_ = 0;
  uint64_t directory_ = 0;  // where the list of all members begins
  uint64_t size_ = 0;
};

}  // namespace muster::torchfile

#endif  // MUSTER_COMMON_TORCHFILE_TORCH_FILE_H_
