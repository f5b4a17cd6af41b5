#include "worker/models/torchscript/checks.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "caffe2/serialize/inline_container.h"

namespace muster::models {
namespace {

// Returns the sizes of the records that hold numbers, the largest first.
std::vector<uint64_t> RecordSizes(const std::string& path) {
  caffe2::serialize::PyTorchStreamReader reader(path);
  std::vector<uint64_t> sizes;
  for (const std::string& name : reader.getAllRecords()) {
    if (absl::StartsWith(name, "data/") || absl::StartsWith(name, "constants/")) {
      sizes.push_back(reader.getRecordSize(name));
    }
  }
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  return sizes;
}

}  // namespace

absl::Status CheckMemory(const std::string& path, const std::vector<at::Tensor>& tensors) {
  std::map<const void*, uint64_t> storages;
  for (const at::Tensor& tensor : tensors) {
    // An empty storage has no record.
    const uint64_t bytes = tensor.storage().nbytes();
    if (bytes > 0) storages[tensor.storage().unsafeGetStorageImpl()] = bytes;
  }
  std::vector<uint64_t> held;
  for (const auto& [storage, bytes] : storages) held.push_back(bytes);
  std::sort(held.begin(), held.end(), std::greater<>());
  std::vector<uint64_t> records;
  try {
    records = RecordSizes(path);
  } catch (const c10::Error& error) {
    return absl::DataLossError(
        absl::StrCat("is cut off or damaged: ", error.what_without_backtrace()));
  }
  // The record of a storage is not known. But if each storage has a large enough record, the n-th
  // largest storage is not larger than the n-th largest record.
  for (size_t i = 0; i < held.size(); ++i) {
    const uint64_t found = i < records.size() ? records[i] : 0;
    if (found >= held[i]) continue;
    return absl::DataLossError(absl::StrCat("is cut off or damaged: expected a record of at least ",
                                            held[i], " bytes for a tensor's storage, found ",
                                            found));
  }
  return absl::OkStatus();
}

}  // namespace muster::models
