#include "client/checkpoints/consolidate.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/checkpoints/new_folder.h"
#include "common/exports/target.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/files/hashing_writer.h"
#include "common/manifest/tensor_reader.h"
#include "common/modelfolder/folder.h"
#include "common/modelfolder/plan.h"
#include "common/status/status.h"

namespace muster::checkpoints {
namespace {

using manifest::StoredTensor;
using manifest::TensorReader;
using modelfolder::FolderPlan;
using safetensors::DType;

// The parameters in the order of the source model, then the buffers by name.
absl::StatusOr<std::vector<const StoredTensor*>> WeightsOf(const TensorReader& reader) {
  std::vector<const StoredTensor*> weights;
  for (const manifest::ParameterRecord& parameter : reader.manifest().parameters) {
    const StoredTensor* tensor = reader.Find("param", parameter.name);
    if (tensor == nullptr) {
      return absl::DataLossError(absl::StrCat(reader.directory(), ": the parameter '",
                                              parameter.name, "' is listed, but has no pieces"));
    }
    weights.push_back(tensor);
  }
  std::vector<const StoredTensor*> buffers;
  size_t parameters = 0;
  for (const StoredTensor& tensor : reader.tensors()) {
    if (tensor.slot == "param") ++parameters;
    if (tensor.slot == "buffer") buffers.push_back(&tensor);
  }
  if (parameters != weights.size()) {
    // Muster 0.3.0 made such a checkpoint from one of 0.1.0 (`muster checkpoints reshard`).
    return absl::FailedPreconditionError(absl::StrCat(reader.directory(), ": has ", parameters,
                                                      " parameters and lists ", weights.size(),
                                                      "; muster 0.3.0 consolidates it"));
  }
  std::sort(buffers.begin(), buffers.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return a->parameter < b->parameter;
  });
  weights.insert(weights.end(), buffers.begin(), buffers.end());
  return weights;
}

absl::StatusOr<FolderPlan> PlanOf(const TensorReader& reader,
                                  const std::vector<const StoredTensor*>& weights,
                                  const ConsolidateOptions& options) {
  std::vector<modelfolder::Tensor> tensors;
  for (const StoredTensor* tensor : weights) {
    const auto dtype = safetensors::DTypeOf(tensor->dtype);
    tensors.push_back({tensor->parameter, tensor->shape, dtype.value_or(DType::kU8)});
  }
  return modelfolder::PlanFolder(
      tensors, {.dtype = options.dtype,
                .max_shard_bytes = options.max_shard_bytes,
                .metadata = {{"format", "pt"}, {exports::kJobIdKey, reader.manifest().job}}});
}

// Appends all elements of a tensor.
absl::Status Append(TensorReader& reader, const StoredTensor& tensor, DType dtype,
                    files::HashingWriter& writer) {
  const int64_t most = static_cast<int64_t>(files::kHashedBlock) / tensor.element_bytes;
  std::vector<char> buffer(std::min(most, tensor.elements) * tensor.element_bytes);
  for (int64_t begin = 0; begin < tensor.elements; begin += most) {
    const int64_t count = std::min(most, tensor.elements - begin);
    RETURN_IF_ERROR(reader.Read(tensor, begin, count, buffer.data()));
    if (tensor.dtype == "F32") {
      RETURN_IF_ERROR(Annotate(
          modelfolder::ConvertFloats(buffer.data(), count, dtype, buffer.data()), tensor.name()));
    }
    RETURN_IF_ERROR(writer.Append(buffer.data(),
                                  count * static_cast<int64_t>(safetensors::ElementSize(dtype))));
  }
  return absl::OkStatus();
}

absl::Status WriteWeights(TensorReader& reader, const std::vector<const StoredTensor*>& weights,
                          const FolderPlan& plan, const std::string& folder, Consolidated* result) {
  for (size_t file = 0; file < plan.files.size(); ++file) {
    const modelfolder::PlannedFile& planned = plan.files[file];
    std::vector<size_t> own;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (plan.places[i].file == file) own.push_back(i);
    }
    std::sort(own.begin(), own.end(),
              [&](size_t a, size_t b) { return plan.places[a].offset < plan.places[b].offset; });
    ASSIGN_OR_RETURN(const auto writer,
                     files::HashingWriter::Create(files::JoinPath(folder, planned.name)));
    RETURN_IF_ERROR(writer->Append(planned.prefix.data(), planned.prefix.size()));
    for (const size_t i : own) {
      RETURN_IF_ERROR(Append(reader, *weights[i], plan.places[i].dtype, *writer));
    }
    RETURN_IF_ERROR(writer->Finish().status());
    result->files.push_back(planned.name);
    result->bytes += planned.size;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Consolidated> Consolidate(const std::string& directory, const std::string& out,
                                         const ConsolidateOptions& options) {
  RETURN_IF_ERROR(modelfolder::CheckTarget(out, options.overwrite));
  ASSIGN_OR_RETURN(TensorReader reader, TensorReader::Open(directory));
  RETURN_IF_ERROR(exports::CheckHoldsNoInput(
      out, {{"the model with which the job began", reader.manifest().first_weights}}));
  ASSIGN_OR_RETURN(const auto weights, WeightsOf(reader));
  ASSIGN_OR_RETURN(const FolderPlan plan, PlanOf(reader, weights, options));
  ASSIGN_OR_RETURN(const NewFolder folder, NewFolder::Create(out));
  Consolidated result{.files = {}, .step = reader.manifest().step, .notes = {}};
  RETURN_IF_ERROR(WriteWeights(reader, weights, plan, folder.temporary(), &result));
  ASSIGN_OR_RETURN(auto companions,
                   modelfolder::WriteCompanions({.index = plan.index,
                                                 .config = reader.manifest().config,
                                                 .first_weights = reader.manifest().first_weights,
                                                 .tokenizer = reader.manifest().tokenizer,
                                                 .dtype = options.dtype},
                                                folder.temporary()));
  result.files.insert(result.files.end(), companions.files.begin(), companions.files.end());
  result.bytes += companions.bytes;
  result.notes = std::move(companions.notes);
  RETURN_IF_ERROR(modelfolder::PlaceFolder(folder.temporary(), out, options.overwrite));
  return result;
}

}  // namespace muster::checkpoints
