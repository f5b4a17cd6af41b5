// The reader of LibTorch for a TorchScript file: first for the check, then for loading.
//
// Data that were read for the check are the same when the file is loaded, even if another process
// writes to the file meanwhile. So what is loaded was checked. Threading: one thread.
#ifndef MUSTER_WORKER_MODELS_TORCHSCRIPT_CHECKED_READER_H_
#define MUSTER_WORKER_MODELS_TORCHSCRIPT_CHECKED_READER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "caffe2/serialize/read_adapter_interface.h"
#include "common/files/mapped_file.h"

namespace muster::models {

class CheckedReader : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit CheckedReader(std::shared_ptr<const files::MappedFile> file) : file_(std::move(file)) {}

  // Ends the check: data that are read for the first time afterwards are not kept.
  void EndCheck() { checking_ = false; }

  size_t size() const override { return file_->size(); }
  // Reads data. The check and the loading read the same records, so a checked record is read from
  // the same place with the same length.
  size_t read(uint64_t pos, void* buf, size_t n, const char* what) const override;

  // The place and the length of the last read.
  const std::pair<uint64_t, size_t>& last() const { return last_; }

 private:
  const std::shared_ptr<const files::MappedFile> file_;
  bool checking_ = true;
  // The data that were read for the check, by place and length.
  mutable std::map<std::pair<uint64_t, size_t>, std::string> checked_;
  mutable std::pair<uint64_t, size_t> last_ = {0, 0};
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_TORCHSCRIPT_CHECKED_READER_H_
