#include "worker/checkpoint/weights.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/hashing_writer.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"

namespace muster::checkpoint {
namespace {

using models::Buffer;
using models::Parameter;
using safetensors::DType;
using safetensors::Entry;

// A tensor of the file, and the source of its values.
struct Stored {
  Entry entry;
  at::Tensor tensor;
  std::optional<size_t> parameter;  // its index; absent: a buffer
};
// Appends the values of a tensor.
using Append = std::function<absl::Status(const Stored& stored, files::HashingWriter* writer)>;

// The number of elements that are read from a checkpoint at a time.
constexpr int64_t kElementsAtOnce = 1 << 20;

// The path of the config.json with which transformers would open the weights.
std::string ConfigOf(const std::string& path) {
  return files::JoinPath(files::ParentDirectory(path), "config.json");
}

absl::Status WriteTensors(const std::string& path, const std::vector<Parameter>& parameters,
                          const std::vector<Buffer>& buffers, const safetensors::Metadata& metadata,
                          const FirstRows& rows, const Append& append) {
  std::vector<Stored> tensors;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, tensor] = parameters[i];
    tensors.push_back({{name, DType::kF32, tensor.sizes().vec()}, tensor, i});
  }
  for (const auto& [name, tensor] : buffers) {
    const DType dtype = tensor.scalar_type() == at::kLong ? DType::kI64 : DType::kF32;
    tensors.push_back({{name, dtype, tensor.sizes().vec()}, tensor});
  }
  for (Stored& stored : tensors) {
    if (const auto found = rows.find(stored.entry.name); found != rows.end()) {
      stored.entry.shape[0] = found->second;
    }
  }
  // Wide numbers come first, because readers may want each number at a multiple of its size.
  std::stable_sort(tensors.begin(), tensors.end(), [](const Stored& a, const Stored& b) {
    return safetensors::ElementSize(a.entry.dtype) > safetensors::ElementSize(b.entry.dtype);
  });
  std::vector<Entry> entries;
  for (const Stored& stored : tensors) entries.push_back(stored.entry);
  ASSIGN_OR_RETURN(const safetensors::FilePlan plan,
                   safetensors::Plan(std::move(entries), metadata));
  ASSIGN_OR_RETURN(const auto writer, files::HashingWriter::Create(path));
  RETURN_IF_ERROR(writer->Append(plan.prefix.data(), plan.prefix.size()));
  for (const Stored& stored : tensors) RETURN_IF_ERROR(append(stored, writer.get()));
  return writer->Finish().status();
}

// Returns whether a tensor of the shape `first` may be the first rows of one of the shape `whole`.
bool HasFirstRows(const std::vector<int64_t>& whole, const std::vector<int64_t>& first) {
  if (whole == first) return true;
  return whole.size() == first.size() && !whole.empty() && whole[0] >= first[0] &&
         std::equal(whole.begin() + 1, whole.end(), first.begin() + 1);
}

// Appends a tensor of a checkpoint.
absl::Status Copy(const Entry& entry, const std::string& slot, manifest::TensorReader* reader,
                  files::HashingWriter* writer) {
  const manifest::StoredTensor* from = reader->Find(slot, entry.name);
  const std::string dtype = safetensors::Name(entry.dtype);
  if (from == nullptr || !HasFirstRows(from->shape, entry.shape) || from->dtype != dtype) {
    return absl::FailedPreconditionError(absl::StrCat(
        reader->directory(), ": expected ", slot, "/", entry.name, " of the shape ",
        safetensors::ShapeString(entry.shape), " and the type ", dtype, ", found ",
        from == nullptr ? "none"
                        : absl::StrCat("the shape ", safetensors::ShapeString(from->shape),
                                       " and the type ", from->dtype)));
  }
  int64_t elements = 1;
  for (const int64_t size : entry.shape) elements *= size;
  std::vector<char> bytes(std::min(elements, kElementsAtOnce) * from->element_bytes);
  for (int64_t begin = 0; begin < elements; begin += kElementsAtOnce) {
    const int64_t count = std::min(kElementsAtOnce, elements - begin);
    RETURN_IF_ERROR(reader->Read(*from, begin, count, bytes.data()));
    RETURN_IF_ERROR(writer->Append(bytes.data(), count * from->element_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteWeights(const std::string& path, const std::vector<Parameter>& parameters,
                          const std::vector<Buffer>& buffers, const safetensors::Metadata& metadata,
                          const BeforeRead& before_read, const FirstRows& rows) {
  return WriteTensors(path, parameters, buffers, metadata, rows,
                      [&](const Stored& stored, files::HashingWriter* writer) -> absl::Status {
                        if (before_read && stored.parameter.has_value()) {
                          RETURN_IF_ERROR(before_read(*stored.parameter));
                        }
                        const at::ScalarType type =
                            stored.entry.dtype == DType::kI64 ? at::kLong : at::kFloat;
                        // The values are read here, because the gathering may have changed the
                        // tensor's memory.
                        at::Tensor values = stored.tensor.detach();
                        const std::vector<int64_t>& shape = stored.entry.shape;
                        if (!shape.empty()) values = values.narrow(0, 0, shape[0]);
                        values = values.to(at::kCPU, type).contiguous();
                        return writer->Append(values.const_data_ptr(), values.nbytes());
                      });
}

absl::Status WriteStoredWeights(const std::string& path, const std::vector<Parameter>& parameters,
                                const std::vector<Buffer>& buffers,
                                const safetensors::Metadata& metadata, const std::string& slot,
                                manifest::TensorReader* reader, const FirstRows& rows) {
  return WriteTensors(path, parameters, buffers, metadata, rows,
                      [&](const Stored& stored, files::HashingWriter* writer) {
                        return Copy(stored.entry, stored.parameter.has_value() ? slot : "buffer",
                                    reader, writer);
                      });
}

absl::StatusOr<FirstRows> FirstTokens(const models::Model& model, int64_t vocab_size) {
  FirstRows rows;
  for (const Parameter& parameter : model.Parameters()) {
    if (!model.ResolveWeight(parameter.name).vocabulary) continue;
    if (parameter.tensor.size(0) < vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat("found ", vocab_size, ", but the model has ",
                                                     parameter.tensor.size(0),
                                                     " tokens; allowed: at most as many"));
    }
    rows[parameter.name] = vocab_size;
  }
  if (rows.empty()) {
    return absl::InvalidArgumentError(
        "the model has no vocabulary; allowed: with gpt2, llama and hf");
  }
  return rows;
}

absl::Status WriteConfig(const std::string& path, const std::string& config) {
  if (config.empty()) return absl::OkStatus();
  return files::WriteAtomically(ConfigOf(path), config);
}

absl::Status SaveWeights(const std::string& path, const std::vector<Parameter>& parameters,
                         const std::vector<Buffer>& buffers) {
  RETURN_IF_ERROR(files::CreateDirectories(files::ParentDirectory(path)));
  const std::string temporary = path + ".tmp";
  RETURN_IF_ERROR(WriteWeights(temporary, parameters, buffers, {{"format", "pt"}}));
  const absl::Status renamed = files::RenameDurably(temporary, path);
  if (!renamed.ok()) unlink(temporary.c_str());
  return renamed;
}

absl::Status ExportModel(const std::string& path, const models::Model& model) {
  RETURN_IF_ERROR(SaveWeights(path, model.Parameters(), model.Buffers()));
  return WriteConfig(path, model.HuggingFaceConfig());
}

}  // namespace muster::checkpoint
