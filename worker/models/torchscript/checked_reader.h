// How LibTorch reads a TorchScript file: first while the file is checked, then while it is loaded.
//
// What was read for the check reads the same when the file is loaded, also if somebody writes into
// the file meanwhile: what was checked is what is loaded. Threading: one thread.
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

  // What is read from now on for the first time is not kept.
  void EndCheck() { checking_ = false; }

  size_t size() const override { return file_->size(); }
  // Both have the same records, so a record that was checked is read from the same place with the
  // same length.
  size_t read(uint64_t pos, void* buf, size_t n, const char* what) const override;

  // Where it was read last, and how much.
  const std::pair<uint64_t, size_t>& last() const { return last_; }

 private:
  const std::shared_ptr<const files::MappedFile> file_;
  bool checking_ = true;
  // By place and length.
  mutable std::map<std::pair<uint64_t, size_t>, std::string> checked_;
  mutable std::pair<uint64_t, size_t> last_ = {0, 0};
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_TORCHSCRIPT_CHECKED_READER_H_
