#include "worker/models/torchscript/file.h"

#include <algorithm>
#include <vector>

#include "ATen/ops/empty.h"
#include "ATen/ops/from_blob.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "caffe2/serialize/inline_container.h"
#include "common/activity/activity.h"
#include "common/filekind/file_kind.h"
#include "common/status/status.h"
#include "torch/csrc/jit/serialization/import.h"
#include "torch/version.h"
#include "worker/device/memory.h"
#include "worker/models/operation_watch.h"
#include "worker/models/torchscript/checked_reader.h"
#include "worker/models/torchscript/checks.h"
#include "worker/models/unit.h"

namespace muster::models {
namespace {

using torch::jit::Module;
using File = std::shared_ptr<const files::MappedFile>;

constexpr char kWhy[] = "the values of this tensor are not read from the TorchScript file yet";

// Copies `bytes` bytes of the file to the begin of the tensor.
void Read(const files::MappedFile& file, uint64_t offset, int64_t bytes, const at::Tensor& to) {
  if (const absl::Status status = file.CheckNotShrunk(); !status.ok()) {
    throw ModelError(Message(status));
  }
  device::CopyFromHost(to, 0, file.data() + offset, bytes);
  activity::Moved();
}

// Frees the memory of each storage while a module is loaded. LibTorch sets each tensor to its
// storage (aten::set_) right after it has read the record with the storage's values. The operation
// uses the storage's address, so the memory is freed after the operation.
class Loading : public OperationWatch {
 public:
  Loading(const CheckedReader* reader, std::map<uint64_t, size_t> records, FileStorages* storages)
      : reader_(reader), records_(std::move(records)), storages_(storages) {}

  void Run(const c10::OperatorHandle& op, c10::Stack* stack) override {
    const Pause pause;
    c10::Storage storage;
    if (op.schema().name() == "aten::set_" && stack->back().isStorage()) {
      storage = stack->back().toStorage();
    }
    op.callBoxed(stack);
    if (!storage) return;
    const auto [offset, bytes] = reader_->last();
    const auto record = records_.find(offset);
    // A record that is shorter than the storage is reported after the module is loaded.
    if (record != records_.end() && record->second == bytes && storage.nbytes() <= bytes) {
      storages_->Take(storage, offset);
    }
  }

 private:
  const CheckedReader* const reader_;
  const std::map<uint64_t, size_t> records_;  // sizes by offset
  FileStorages* const storages_;
};

// Returns the records with the values of tensors, not those with constants of the code.
std::map<uint64_t, size_t> DataRecords(const std::shared_ptr<CheckedReader>& file) {
  caffe2::serialize::PyTorchStreamReader reader(file);
  std::map<uint64_t, size_t> records;
  for (const std::string& name : reader.getAllRecords()) {
    if (!absl::StartsWith(name, "data/")) continue;
    records[reader.getRecordOffset(name)] = reader.getRecordSize(name);
  }
  return records;
}

// Returns the first line with text of a message of TorchScript or its reader.
std::string FirstLine(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \n\t");
  if (begin == std::string::npos) return "no reason given";
  const std::string line =
      text.substr(begin, std::min<size_t>(text.find('\n', begin) - begin, 300));
  return line.substr(0, line.find_last_not_of(" :") + 1);
}

// Calls `load` with a reader of the file. Turns exceptions into errors.
absl::StatusOr<Module> Load(
    const File& file, const std::function<Module(const std::shared_ptr<CheckedReader>&)>& load) {
  const std::string begin(reinterpret_cast<const char*>(file->data()),
                          std::min<size_t>(file->size(), 2));
  if (begin != "PK") {
    const auto other =
        filekind::Mismatch(file->data(), file->size(), filekind::Wanted::kTorchScript);
    return absl::InvalidArgumentError(
        other.value_or("expected a TorchScript file (torch.jit.save), found something else"));
  }
  std::string error;
  try {
    const auto reader = std::make_shared<CheckedReader>(file);
    caffe2::serialize::PyTorchStreamReader archive(reader);
    RETURN_IF_ERROR(CheckNothingRunsWhileLoading(&archive));
    reader->EndCheck();
    return load(reader);
  } catch (const c10::Error& thrown) {
    error = thrown.what_without_backtrace();
  } catch (const std::exception& thrown) {
    error = thrown.what();
  }
  const auto says = [&error](const char* text) { return error.find(text) != std::string::npos; };
  if (says("constants.pkl") && says("not found")) {
    return absl::InvalidArgumentError(
        "expected a TorchScript file (torch.jit.save), found an archive without code, as "
        "torch.save makes it: in Python, torch.jit.script(model).save(FILE) writes one with code");
  }
  if (says("PytorchStreamReader")) {
    return absl::DataLossError(absl::StrCat("is cut off or damaged: ", FirstLine(error)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("cannot be loaded by LibTorch " TORCH_VERSION ": ", FirstLine(error)));
}

}  // namespace

int64_t EndOf(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return tensor.storage_offset();
  int64_t last = tensor.storage_offset();
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return last + 1;
}

void FileStorages::Take(const c10::Storage& storage, uint64_t offset) {
  const auto bytes = static_cast<int64_t>(storage.nbytes());
  if (bytes == 0 || offset + bytes > file_->size() ||
      places_.contains(storage.unsafeGetStorageImpl())) {
    return;
  }
  // The bytes differ if the record is compressed.
  const at::Tensor read = at::empty({0}, at::kByte).set_(storage, 0, {bytes}, {1});
  auto* const in_file = const_cast<uint8_t*>(file_->data() + offset);
  if (!read.equal(at::from_blob(in_file, {bytes}, at::kByte))) return;
  places_.emplace(storage.unsafeGetStorageImpl(), Place{storage, offset});
  device::Withhold(*storage.unsafeGetStorageImpl(), kWhy);
}

bool FileStorages::Has(const at::Tensor& tensor) const {
  const auto place = places_.find(tensor.storage().unsafeGetStorageImpl());
  return place != places_.end() && EndOf(tensor) * tensor.element_size() <=
                                       static_cast<int64_t>(place->second.storage.nbytes());
}

std::function<at::Tensor(int64_t begin, int64_t end)> FileStorages::Reader(
    const at::Tensor& tensor) const {
  const int64_t size = tensor.element_size();
  const uint64_t offset =
      places_.at(tensor.storage().unsafeGetStorageImpl()).offset + tensor.storage_offset() * size;
  const at::TensorOptions type(tensor.scalar_type());
  if (tensor.is_contiguous()) {
    return [=, file = file_](int64_t begin, int64_t end) {
      const at::Tensor values = at::empty({end - begin}, type);
      Read(*file, offset + begin * size, (end - begin) * size, values);
      return values;
    };
  }
  const int64_t span = EndOf(tensor) - tensor.storage_offset();
  return [=, file = file_, sizes = tensor.sizes().vec(), strides = tensor.strides().vec()](
             int64_t begin, int64_t end) {
    const at::Tensor values = at::empty({span}, type);
    Read(*file, offset, span * size, values);
    return values.as_strided(sizes, strides).reshape({-1}).slice(0, begin, end).clone();
  };
}

void FileStorages::Settle(const std::set<const c10::StorageImpl*>& except) {
  for (auto& [storage, place] : places_) {
    if (except.contains(storage)) continue;
    const auto bytes = static_cast<int64_t>(place.storage.nbytes());
    const at::Tensor values = at::empty({bytes}, at::kByte);
    Read(*file_, place.offset, bytes, values);
    device::Give(*place.storage.unsafeGetStorageImpl(), values);
  }
  std::erase_if(places_, [&except](const auto& one) { return !except.contains(one.first); });
}

absl::StatusOr<LoadedFile> LoadWhole(const std::string& path) {
  ASSIGN_OR_RETURN(files::MappedFile opened, files::MappedFile::Open(path));
  const auto file = std::make_shared<const files::MappedFile>(std::move(opened));
  ASSIGN_OR_RETURN(Module module, Load(file, [](const std::shared_ptr<CheckedReader>& reader) {
                     return torch::jit::load(reader, at::Device(at::kCPU));
                   }));
  return LoadedFile{std::move(module), std::nullopt};
}

absl::StatusOr<LoadedFile> LoadWithoutMemory(const std::string& path) {
  ASSIGN_OR_RETURN(files::MappedFile opened, files::MappedFile::Open(path));
  const auto file = std::make_shared<const files::MappedFile>(std::move(opened));
  FileStorages storages(file);
  ASSIGN_OR_RETURN(Module module, Load(file, [&](const std::shared_ptr<CheckedReader>& reader) {
                     Loading loading(reader.get(), DataRecords(reader), &storages);
                     const OperationWatch::Scope scope(&loading);
                     return torch::jit::load(reader, at::Device(at::kCPU));
                   }));
  return LoadedFile{std::move(module), std::move(storages)};
}

}  // namespace muster::models
