#include "worker/checkpoint/load_weights.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "ATen/core/IListRef.h"
#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/empty.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/activity/activity.h"
#include "common/filekind/file_kind.h"
#include "common/files/files.h"
#include "common/problems/problems.h"
#include "common/safetensors/safetensors.h"
#include "common/safetensors/tensor_set.h"
#include "common/status/status.h"
#include "worker/data/scans.h"

namespace muster::checkpoint {
namespace {

using models::WeightName;
using safetensors::DType;
using safetensors::Entry;
using safetensors::ShapeString;
using safetensors::StoredTensor;
using safetensors::TensorSet;

// A tensor of the model and the data that the files contain for it.
struct Target {
  std::string name;
  at::Tensor tensor;
  bool optional = false;
  std::vector<StoredTensor> sources;
};

std::vector<Target> TargetsOf(const models::Model& model) {
  std::vector<Target> targets;
  for (const models::Parameter& parameter : model.Parameters()) {
    targets.push_back({parameter.name, parameter.tensor});
  }
  for (const models::Buffer& buffer : model.Buffers()) {
    // Files of PyTorch before 0.4.1 lack this buffer, and no result depends on it.
    const bool optional = absl::EndsWith(buffer.name, "num_batches_tracked");
    targets.push_back({buffer.name, buffer.tensor, optional});
  }
  return targets;
}

// The dtypes that a file may contain for a tensor, for errors; CanBecome checks one dtype.
const char* AllowedTypes(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kLong ? "I64" : "F64, F32, F16 or BF16";
}

bool CanBecome(DType dtype, const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kLong) return dtype == DType::kI64;
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 ||
         dtype == DType::kBF16;
}

at::ScalarType TypeOf(DType dtype) {
  return dtype == DType::kF16    ? at::kHalf
         : dtype == DType::kBF16 ? at::kBFloat16
         : dtype == DType::kF64  ? at::kDouble
         : dtype == DType::kI64  ? at::kLong
                                 : at::kFloat;
}

// The name of the output layer, which transformers' language models often share with the embedding.
constexpr char kOutputLayer[] = "lm_head.weight";

bool IsOutputLayer(const StoredTensor& tensor) { return tensor.name() == kOutputLayer; }

// Reads and checks the values of targets.
class Reader {
 public:
  Reader(std::shared_ptr<const TensorSet> files, std::shared_ptr<LoadedWeights::Read> read)
      : files_(std::move(files)), read_(std::move(read)) {}

  // Copies the elements [begin, begin + to.numel()) of the target's sources, in the order of a
  // contiguous tensor, to `to`, contiguous memory of the CPU. Copies block by block, so that memory
  // for one block is enough. Each problem is added to `read_`.
  enum class Values { kFinite, kAny };
  void Copy(const std::vector<StoredTensor>& sources, int64_t begin, const at::Tensor& to,
            Values allowed) const {
    const c10::NoGradGuard no_grad;
    const at::Tensor flat = to.detach().view({-1});
    const int64_t most = activity::kBlockBytes / std::max<int64_t>(to.element_size(), 8);
    std::vector<bool> differs(sources.size());
    for (int64_t done = 0; done < flat.numel(); done += most) {
      const int64_t elements = std::min(most, flat.numel() - done);
      const at::Tensor block = flat.narrow(0, done, elements);
      const at::Tensor first = Block(sources[0], begin + done, elements);
      block.copy_(first);
      for (size_t i = 1; i < sources.size(); ++i) {
        const at::Tensor other = Block(sources[i], begin + done, elements);
        differs[i] = differs[i] || !block.equal(other.to(block.scalar_type()));
      }
      if (allowed == Values::kFinite && block.scalar_type() == at::kFloat) {
        const auto wrong = data::FirstNotFinite(block.const_data_ptr<float>(), elements);
        if (wrong.has_value()) {
          NotFinite(sources[0], begin + done + static_cast<int64_t>(*wrong),
                    first[static_cast<int64_t>(*wrong)].item<double>());
          allowed = Values::kAny;  // report one problem for each tensor
        }
      }
      activity::Moved();
    }
    for (size_t i = 1; i < sources.size(); ++i) {
      if (!differs[i]) continue;
      read_->problems.Add(absl::StrCat(files_->Describe(sources[0]), " and ",
                                       files_->Describe(sources[i]),
                                       " are one parameter of this model, but differ in the file",
                                       IsOutputLayer(sources[0]) || IsOutputLayer(sources[i])
                                           ? " (with 'tied: false' the model has both)"
                                           : ""));
    }
  }

 private:
  // Returns a block in the type of the file.
  at::Tensor Block(const StoredTensor& source, int64_t begin, int64_t elements) const {
    const at::Tensor raw = at::empty({elements}, TypeOf(source.entry->dtype));
    std::memcpy(raw.mutable_data_ptr(), source.data() + begin * raw.element_size(), raw.nbytes());
    read_->bytes += static_cast<int64_t>(raw.nbytes());
    return raw;
  }

  void NotFinite(const StoredTensor& source, int64_t index, double found) const {
    read_->problems.Add(
        absl::StrCat(files_->Describe(source), ": expected ",
                     std::isfinite(found) ? "numbers that float32 can hold" : "finite numbers",
                     ", found ", found, " as number ", index));
  }

  std::shared_ptr<const TensorSet> files_;
  std::shared_ptr<LoadedWeights::Read> read_;
};

// Returns kFinite, or kAny for a tensor that is not finite in the model itself (a mask of -inf,
// say). Such a tensor may be not finite in the file, too.
Reader::Values AllowedFor(const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kFloat) return Reader::Values::kAny;
  const at::Tensor own = tensor.contiguous();
  const bool finite = !data::FirstNotFinite(own.const_data_ptr<float>(), own.numel()).has_value();
  return finite ? Reader::Values::kFinite : Reader::Values::kAny;
}

// Returns whether a tensor of this shape has rows as those of a tensor of the model.
bool HasSuchRows(const std::vector<int64_t>& shape, const at::Tensor& tensor) {
  if (static_cast<int64_t>(shape.size()) != tensor.dim() || shape.empty()) return false;
  return at::IntArrayRef(shape).slice(1) == tensor.sizes().slice(1);
}

// Returns the number of elements that all sources have.
int64_t ElementsOf(const std::vector<StoredTensor>& sources) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const StoredTensor& source : sources) {
    int64_t elements = 1;
    for (const int64_t size : source.entry->shape) elements *= size;
    least = std::min(least, elements);
  }
  return least;
}

// Adds each tensor that is taken to the target for which it is meant.
void FindSources(const TensorSet& set, const WeightsOptions& options, const models::Model& model,
                 std::vector<Target>* targets, WeightsReport* report, Problems* problems) {
  std::map<std::string, size_t> by_name;
  for (size_t i = 0; i < targets->size(); ++i) by_name[(*targets)[i].name] = i;
  std::vector<std::string> names;
  for (const StoredTensor& source : set.tensors()) names.push_back(source.name());
  const auto taken = TakenNames(names, options.take, options.rename, problems);
  for (size_t i = 0; i < names.size(); ++i) {
    const StoredTensor& source = set.tensors()[i];
    if (!taken[i].has_value()) {
      report->ignored.push_back(names[i]);
      continue;
    }
    const bool renamed = *taken[i] != names[i];
    const std::string described =
        absl::StrCat(set.Describe(source), renamed ? absl::StrCat(", now '", *taken[i], "'") : "");
    const WeightName name = model.ResolveWeight(*taken[i]);
    if (name.kind == WeightName::Kind::kIgnored) {
      report->ignored.push_back(names[i]);
      continue;
    }
    const auto found = by_name.find(name.parameter);
    if (name.kind == WeightName::Kind::kUnknown || found == by_name.end()) {
      problems->Add(absl::StrCat("unexpected ", described));
      continue;
    }
    report->taken.push_back(names[i]);
    if (renamed) report->renamed.push_back(absl::StrCat("'", names[i], "' to '", *taken[i], "'"));
    Target& target = (*targets)[found->second];
    target.sources.push_back(source);
    const Entry& entry = *source.entry;
    const bool padded = name.vocabulary && options.pad_vocabulary;
    const bool such_rows = HasSuchRows(entry.shape, target.tensor);
    const int64_t more = such_rows ? entry.shape[0] - target.tensor.size(0) : 0;
    if ((more > 0 && (name.first_rows || padded)) || (more < 0 && padded)) {
      (more > 0 ? report->shortened : report->padded)
          .push_back(absl::StrCat("'", names[i], "' from ", entry.shape[0], " to ",
                                  target.tensor.size(0), " rows"));
    } else if (at::IntArrayRef(entry.shape) != target.tensor.sizes()) {
      problems->Add(absl::StrCat(described, ": expected the shape ",
                                 ShapeString(target.tensor.sizes().vec()), ", found ",
                                 ShapeString(entry.shape)));
    }
    if (!CanBecome(entry.dtype, target.tensor)) {
      problems->Add(absl::StrCat(described, ": expected ", AllowedTypes(target.tensor), ", found ",
                                 Name(entry.dtype)));
    }
  }
}

// Returns advice about a tensor that the file does not have; may be empty.
std::string HowToDoWithout(const Target& target, const models::Model& model) {
  const bool language = model.kind() == "gpt2" || model.kind() == "llama";
  if (!language || target.name != kOutputLayer) return "";
  return absl::StrCat(" (in a file without it the output layer is the token embedding: model.",
                      model.kind(), ".tied: true)");
}

// Checks the config.json beside the weights of transformers, because the weights alone do not show
// all properties of their model.
absl::Status CheckConfig(const WeightsOptions& options, const models::Model& model,
                         WeightsReport* report) {
  const std::string& path = options.path;
  const size_t name = path.find_last_of('/') + 1;  // 0 without a folder
  if (!absl::StartsWith(path.substr(name), "model.safetensors")) return absl::OkStatus();
  const std::string config = files::JoinPath(files::ParentDirectory(path), "config.json");
  const auto text = files::ReadFile(config);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  RETURN_IF_ERROR(text.status());
  RETURN_IF_ERROR(filekind::CheckKind(config, reinterpret_cast<const uint8_t*>(text->data()),
                                      text->size(), filekind::Wanted::kJson));
  const absl::Status differs = Annotate(model.CheckHuggingFaceConfig(*text), config);
  if (options.rename.empty()) return differs;
  if (!differs.ok()) report->other_config = Message(differs);
  return absl::OkStatus();
}

// "taken: 2 ('a', 'b')"
std::string Few(const char* what, const std::vector<std::string>& names, const char* quote) {
  std::string text = absl::StrCat(what, ": ", names.size());
  for (size_t i = 0; i < names.size() && i < Problems::kShown; ++i) {
    absl::StrAppend(&text, i == 0 ? " (" : ", ", quote, names[i], quote);
  }
  if (names.size() > Problems::kShown) {
    absl::StrAppend(&text, " and ", names.size() - Problems::kShown, " more");
  }
  return names.empty() ? text : text + ")";
}

}  // namespace

std::string Describe(const WeightsReport& report) {
  return absl::StrCat(Few("tensors taken", report.taken, "'"), "; ",
                      Few("of these renamed", report.renamed, ""), "; ",
                      Few("of these shortened", report.shortened, ""), "; ",
                      report.padded.empty() ? "" : Few("of these padded", report.padded, "") + "; ",
                      Few("ignored", report.ignored, "'"), "; ",
                      Few("left at their initial values", report.initial, "'"));
}

absl::StatusOr<LoadedWeights> LoadWeights(const WeightsOptions& options, const models::Model& model,
                                          models::DeferredValues* deferred) {
  ASSIGN_OR_RETURN(TensorSet opened, TensorSet::Open(options.path));
  const auto files = std::make_shared<const TensorSet>(std::move(opened));
  WeightsReport report;
  RETURN_IF_ERROR(CheckConfig(options, model, &report));
  std::vector<Target> targets = TargetsOf(model);
  Problems problems;
  FindSources(*files, options, model, &targets, &report, &problems);
  for (const Target& target : targets) {
    if (!target.sources.empty()) continue;
    if (!target.optional && options.missing == WeightsOptions::Missing::kRefuse) {
      problems.Add(absl::StrCat("missing '", target.name, "'", HowToDoWithout(target, model)));
    }
    report.initial.push_back(target.name);
  }
  if (report.taken.empty() && problems.count() == 0) {
    problems.Add("the model has none of the tensors that are taken");
  }
  RETURN_IF_ERROR(problems.ToStatus(absl::StatusCode::kInvalidArgument, options.path));
  const auto read = std::make_shared<LoadedWeights::Read>();
  read->path = options.path;
  const Reader reader(files, read);
  const c10::NoGradGuard no_grad;
  for (const auto& [name, tensor, optional, sources] : targets) {
    if (sources.empty()) continue;
    const at::TensorOptions type(tensor.scalar_type());
    const int64_t given = ElementsOf(sources);
    if (deferred != nullptr && deferred->Has(tensor)) {
      deferred->Replace(tensor, [reader, sources, type, given, initial = deferred->MakerOf(tensor)](
                                    int64_t begin, int64_t end) {
        const int64_t middle = std::clamp(given, begin, end);
        if (middle == begin) return initial(begin, end);
        const at::Tensor values = at::empty({middle - begin}, type);
        reader.Copy(sources, begin, values, Reader::Values::kFinite);
        return middle == end ? values : at::cat({values, initial(middle, end)});
      });
      continue;
    }
    if (given < tensor.numel()) {
      reader.Copy(sources, 0, tensor.view({-1}).narrow(0, 0, given), AllowedFor(tensor));
      continue;
    }
    const bool in_place = tensor.is_contiguous();
    const at::Tensor values = in_place ? tensor : at::empty(tensor.sizes(), type);
    reader.Copy(sources, 0, values, AllowedFor(tensor));
    if (!in_place) tensor.copy_(values);
  }
  LoadedWeights loaded(std::move(report), read);
  RETURN_IF_ERROR(loaded.status());
  return loaded;
}

}  // namespace muster::checkpoint
