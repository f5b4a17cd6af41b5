#include "worker/models/torchscript.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/allclose.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/files/mapped_file.h"
#include "common/problems/problems.h"
#include "common/status/status.h"
#include "nlohmann/json.hpp"
#include "torch/csrc/jit/api/module.h"
#include "torch/csrc/jit/passes/inliner.h"
#include "torch/csrc/jit/runtime/graph_executor.h"
#include "torch/csrc/jit/serialization/import.h"
#include "torch/version.h"
#include "worker/models/options.h"
#include "worker/models/output_check.h"
#include "worker/models/seed.h"
#include "worker/models/torchscript_memory.h"

namespace muster::models {
namespace {

using torch::jit::Module;

// ---- The tensors of a file ----

// One attribute of one of the file's modules.
struct Slot {
  c10::intrusive_ptr<c10::ivalue::Object> owner;
  size_t index;

  at::Tensor Get() const { return owner->getSlot(index).toTensor(); }
  void Set(const at::Tensor& tensor) const { owner->setSlot(index, tensor); }
};

// A later kind wins where attributes share a tensor.
enum class Kind {
  kConstant,  // stays as the file has it
  kBuffer,
  kParameter,
};

struct FileTensor {
  std::vector<std::string> names;  // of all attributes that are this tensor, the first one first
  std::vector<Slot> slots;         // likewise
  std::set<std::string> children;  // the top module's children in which they lie; "": in itself
  Kind kind = Kind::kConstant;
  at::Tensor tensor;
};

// A place in memory and the way to read it. Files keep no more of sharing than that.
using Place = std::tuple<const void*, int64_t, std::vector<int64_t>, std::vector<int64_t>>;

Place PlaceOf(const at::Tensor& tensor) {
  return {tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.sizes().vec(),
          tensor.strides().vec()};
}

// One past the last element that the tensor reads, from the beginning of its storage.
int64_t EndOf(const at::Tensor& tensor) {
  int64_t last = tensor.storage_offset();
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return last + 1;
}

bool Overlap(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() > 0 && b.numel() > 0 &&
         a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl() &&
         a.storage_offset() < EndOf(b) && b.storage_offset() < EndOf(a);
}

Kind KindOf(const c10::ClassType& type, size_t attribute, const at::Tensor& tensor) {
  if (type.is_parameter(attribute)) return Kind::kParameter;
  const bool kept = tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kLong;
  return type.is_buffer(attribute) && kept ? Kind::kBuffer : Kind::kConstant;
}

// All tensors, each once, in the order of the modules.
std::vector<FileTensor> FindTensors(const Module& top) {
  std::vector<FileTensor> found;
  std::map<Place, size_t> known;
  for (const auto& [path, module] : top.named_modules()) {
    const auto owner = module._ivalue();
    const auto type = owner->type();
    for (size_t i = 0; i < type->numAttributes(); ++i) {
      if (!owner->getSlot(i).isTensor()) continue;
      const at::Tensor tensor = owner->getSlot(i).toTensor();
      if (!tensor.defined() || !tensor.has_storage()) continue;
      const auto [at, inserted] = known.emplace(PlaceOf(tensor), found.size());
      if (inserted) found.push_back({.tensor = tensor});
      FileTensor& entry = found[at->second];
      entry.names.push_back(path.empty() ? type->getAttributeName(i)
                                         : absl::StrCat(path, ".", type->getAttributeName(i)));
      entry.slots.push_back({owner, i});
      entry.children.insert(path.substr(0, path.find('.')));
      entry.kind = std::max(entry.kind, KindOf(*type, i, tensor));
    }
  }
  return found;
}

void CheckTensors(const std::vector<FileTensor>& tensors, Problems* problems) {
  bool trains = false;
  for (const FileTensor& one : tensors) {
    if (one.kind != Kind::kParameter) continue;
    trains = true;
    const std::string name = absl::StrCat("parameter '", one.names.front(), "'");
    if (one.tensor.scalar_type() != at::kFloat || one.tensor.layout() != at::kStrided) {
      problems->Add(absl::StrCat(name, ": expected Float, found ", c10::toString(one.tensor.scalar_type())));
    } else if (!one.tensor.requires_grad()) {
      problems->Add(absl::StrCat(name, ": expected one that requires a gradient, found a frozen one; save it "
                                       "with requires_grad, or as a buffer"));
    }
  }
  if (!trains) {
    problems->Add("expected parameters to train, found none (torch.jit.freeze makes them constants)");
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!Overlap(tensors[i].tensor, tensors[j].tensor)) continue;
      problems->Add(absl::StrCat("'", tensors[j].names.front(), "' and '", tensors[i].names.front(),
                                 "': parts of one memory; expected tensors that share all of it or nothing"));
    }
  }
}

// Puts a tensor of its own, a leaf, behind each parameter and buffer, the same one wherever the file shared it.
void Separate(std::vector<FileTensor>* tensors) {
  for (FileTensor& one : *tensors) {
    if (one.kind == Kind::kConstant) continue;
    one.tensor = one.tensor.detach().clone(at::MemoryFormat::Contiguous);
    if (one.kind == Kind::kParameter) one.tensor.requires_grad_(true);
    for (const Slot& slot : one.slots) slot.Set(one.tensor);
  }
}

// ---- Units ----

// Draws the process-wide generator's seed from the rank's own one: TorchScript's random operators know only the former.
// One holder at a time, so that ranks that are threads of one process do not disturb each other; what the
// generator was before is put back.
class SeededByRank {
 public:
  explicit SeededByRank(at::Generator& rank) : lock_(Mutex()), process_(at::detail::getDefaultCPUGenerator()) {
    uint64_t seed = 0;
    {
      const std::lock_guard<std::mutex> rank_lock(rank.mutex());
      seed = rank.get<at::CPUGeneratorImpl>()->random64();
    }
    const std::lock_guard<std::mutex> process_lock(process_.mutex());
    before_ = process_.get_state();
    process_.set_current_seed(seed);
  }
  ~SeededByRank() {
    const std::lock_guard<std::mutex> process_lock(process_.mutex());
    process_.set_state(before_);
  }

 private:
  static std::mutex& Mutex() {
    static auto& mutex = *new std::mutex;
    return mutex;
  }

  const std::lock_guard<std::mutex> lock_;
  at::Generator process_;
  at::Tensor before_;
};

at::Tensor RunForward(Module& module, const at::Tensor& x) {
  // The interpreter runs operator by operator, as Python does: what its optimizer fuses after some calls would give other
  // bits, and a resumed run would begin anew without it.
  const torch::jit::GraphOptimizerEnabledGuard unoptimized(false);
  const c10::IValue y = module.forward({x});
  TORCH_CHECK(y.isTensor(), "forward: expected a tensor, found ", y.tagKind());
  return y.toTensor();
}

// A module with everything below it.
class ScriptUnit : public Unit {
 public:
  // `tensors` are those in the module; `row` is the shape into which rows are brought, empty: as they come.
  ScriptUnit(std::string name, Module module, const std::vector<const FileTensor*>& tensors,
             std::vector<int64_t> row)
      : Unit(std::move(name)), module_(std::move(module)), row_(std::move(row)) {
    for (const FileTensor* one : tensors) {
      if (one->kind == Kind::kParameter) {
        AddParameter(one->names.front(), one->tensor);
        parameter_slots_.push_back(one->slots);
      } else if (one->kind == Kind::kBuffer) {
        AddBuffer(one->names.front(), one->tensor);
        buffer_slots_.push_back(one->slots);
      } else {
        constants_.push_back({one->names.front(), one->slots.front(), one->tensor, one->tensor._version()});
      }
    }
  }

  at::Tensor Forward(const at::Tensor& x, ForwardContext& context) override {
    PutParameters();
    SetMode(context.training());
    if (!context.training()) return RunForward(module_, InRows(x, row_)).contiguous();
    std::optional<SeededByRank> seeded(context.generator());
    const at::Tensor y = RunForward(module_, InRows(x, row_)).contiguous();
    seeded.reset();
    TakeBuffers();
    CheckConstants();
    return y;
  }

 private:
  struct Constant {
    std::string name;
    Slot slot;
    at::Tensor tensor;
    int64_t version;
  };

  // Another tensor may stand behind a parameter since the last call.
  void PutParameters() {
    for (size_t i = 0; i < parameter_slots_.size(); ++i) {
      if (parameter_slots_[i].front().Get().is_same(parameter(i))) continue;
      for (const Slot& slot : parameter_slots_[i]) slot.Set(parameter(i));
    }
  }

  void SetMode(bool training) {
    if (mode_ == training) return;
    module_.train(training);
    mode_ = training;
  }

  // A script may assign a new tensor to a buffer: its values belong into ours.
  void TakeBuffers() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < buffer_slots_.size(); ++i) {
      for (const Slot& slot : buffer_slots_[i]) {
        const at::Tensor now = slot.Get();
        if (now.is_same(buffer(i))) continue;
        TORCH_CHECK(now.sizes() == buffer(i).sizes() && now.scalar_type() == buffer(i).scalar_type(),
                    "buffer '", own_buffers()[i].name, "': expected the shape and type of before");
        buffer(i).copy_(now);
        slot.Set(buffer(i));
      }
    }
  }

  void CheckConstants() const {
    for (const Constant& one : constants_) {
      const at::Tensor now = one.slot.Get();
      TORCH_CHECK(now.is_same(one.tensor) && now._version() == one.version, "'", one.name,
                  "' was changed by forward, but is no buffer of type Float or Long, so no checkpoint holds it");
    }
  }

  Module module_;
  const std::vector<int64_t> row_;
  std::vector<std::vector<Slot>> parameter_slots_;
  std::vector<std::vector<Slot>> buffer_slots_;
  std::vector<Constant> constants_;
  std::optional<bool> mode_;
};

// The children, one after the other.
class SequenceRoot : public Unit {
 public:
  SequenceRoot(const Module& top, const std::vector<FileTensor>& tensors, std::vector<int64_t> row)
      : Unit(""), row_(std::move(row)) {
    for (const auto& [name, child] : top.named_children()) {
      std::vector<const FileTensor*> inside;
      for (const FileTensor& one : tensors) {
        if (one.children.count(name) > 0) inside.push_back(&one);
      }
      AddChild(std::make_unique<ScriptUnit>(name, child, inside, std::vector<int64_t>{}));
    }
  }

  at::Tensor Forward(const at::Tensor& rows, ForwardContext& context) override {
    at::Tensor x = InRows(rows, row_);
    for (const auto& child : children()) x = context.Call(*child, x);
    return x;
  }

 private:
  const std::vector<int64_t> row_;
};

bool TakesAndGivesOneTensor(const Module& module) {
  const auto method = module.find_method("forward");
  if (!method.has_value()) return false;
  const c10::FunctionSchema& schema = method->function().getSchema();
  const auto is_tensor = [](const c10::Argument& one) { return one.type()->kind() == c10::TypeKind::TensorType; };
  return schema.arguments().size() == 2 && is_tensor(schema.arguments()[1]) &&
         schema.returns().size() == 1 && is_tensor(schema.returns()[0]);
}

// Whether the top module is a torch.nn.Sequential whose children share nothing.
bool IsSequence(const Module& top, const std::vector<FileTensor>& tensors) {
  const auto name = top.type()->name();
  if (!name.has_value() || name->name() != "Sequential" ||
      name->prefix().rfind("__torch__.torch.nn.modules.container", 0) != 0) {
    return false;
  }
  for (const FileTensor& one : tensors) {
    if (one.children.size() != 1 || one.children.count("") > 0) return false;
  }
  for (const Module& child : top.children()) {
    if (!TakesAndGivesOneTensor(child)) return false;
  }
  return true;
}

// ---- The model ----

class TorchscriptModel : public Model {
 public:
  TorchscriptModel(std::unique_ptr<Unit> root, const InputSpec& input, const std::vector<FileTensor>& tensors)
      : Model("torchscript", std::move(root)), input_(input) {
    for (const FileTensor& one : tensors) {
      for (const std::string& name : one.names) {
        weights_[name] = one.kind == Kind::kConstant
                             ? WeightName{WeightName::Kind::kIgnored, ""}
                             : WeightName{WeightName::Kind::kParameter, one.names.front()};
      }
    }
  }

  // A file from Python's state_dict() may have every name of a shared tensor, and the constants.
  WeightName ResolveWeight(const std::string& name) const override {
    const auto found = weights_.find(name);
    return found == weights_.end() ? WeightName{} : found->second;
  }

 protected:
  InputSpec UnitsInput() const override { return input_; }

 private:
  const InputSpec input_;
  std::map<std::string, WeightName> weights_;
};

// ---- Loading and checking ----

// The first line that says something, of what TorchScript and its reader write.
std::string FirstLine(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \n\t");
  if (begin == std::string::npos) return "no reason given";
  const std::string line = text.substr(begin, std::min<size_t>(text.find('\n', begin) - begin, 300));
  return line.substr(0, line.find_last_not_of(" :") + 1);
}

// An error out of a script ends with its reason, after the traceback.
std::string LastLine(const std::string& text) {
  const size_t end = text.find_last_not_of(" \n\t");
  if (end == std::string::npos) return "no reason given";
  const size_t before = text.find_last_of('\n', end);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  return text.substr(begin, std::min<size_t>(end + 1 - begin, 300));
}

absl::StatusOr<Module> LoadFile(const std::string& path) {
  ASSIGN_OR_RETURN(const files::MappedFile file, files::MappedFile::Open(path));
  const std::string begin(reinterpret_cast<const char*>(file.data()), std::min<size_t>(file.size(), 2));
  if (begin != "PK") {
    return absl::InvalidArgumentError("expected a TorchScript file (torch.jit.save), found something else");
  }
  std::string error;
  try {
    return torch::jit::load(path, at::Device(at::kCPU));
  } catch (const c10::Error& thrown) {
    error = thrown.what_without_backtrace();
  } catch (const std::exception& thrown) {
    error = thrown.what();
  }
  const auto says = [&error](const char* text) { return error.find(text) != std::string::npos; };
  if (says("constants.pkl") && says("not found")) {
    return absl::InvalidArgumentError("expected a TorchScript file (torch.jit.save), found an archive without code");
  }
  if (says("PytorchStreamReader")) {
    return absl::DataLossError(absl::StrCat("is cut off or damaged: ", FirstLine(error)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("cannot be loaded by LibTorch " TORCH_VERSION ": ", FirstLine(error)));
}

// Names of attributes that are no tensors, but that forward assigns.
void FindAssigned(torch::jit::Block* block, std::set<std::string>* names) {
  for (torch::jit::Node* node : block->nodes()) {
    if (node->kind() == c10::prim::SetAttr &&
        node->inputs()[1]->type()->kind() != c10::TypeKind::TensorType) {
      names->insert(node->s(c10::attr::name));
    }
    for (torch::jit::Block* inner : node->blocks()) FindAssigned(inner, names);
  }
}

absl::Status CheckForward(const Module& top) {
  const auto method = top.find_method("forward");
  if (!method.has_value()) return absl::InvalidArgumentError("expected a module with a method forward");
  const auto& arguments = method->function().getSchema().arguments();
  const bool takes_one =
      arguments.size() >= 2 &&
      std::all_of(arguments.begin() + 2, arguments.end(),
                  [](const c10::Argument& one) { return one.default_value().has_value(); });
  if (!takes_one) {
    return absl::InvalidArgumentError(
        absl::StrCat("forward: expected one argument, found ", arguments.size() - 1));
  }
  const auto graph = method->graph()->copy();
  torch::jit::Inline(*graph);
  std::set<std::string> assigned;
  FindAssigned(graph->block(), &assigned);
  if (assigned.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("forward assigns ", absl::StrJoin(assigned, ", "),
                   ", which is no tensor, so no checkpoint holds it; make it a buffer"));
}

bool Same(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         at::allclose(a, b, /*rtol=*/0, /*atol=*/0, /*equal_nan=*/true);
}

// Runs the units twice in evaluation: the result must be of the right shape, the same both times, and no buffer may have changed.
absl::StatusOr<at::Tensor> Probe(Unit& root, const Batch& batch, const InputSpec& input) {
  std::vector<at::Tensor> before;
  for (const Buffer& buffer : root.Buffers()) before.push_back(buffer.tensor.clone());
  ForwardContext context(Mode::kEvaluate, MakeGenerator(0));
  at::Tensor outputs[2];
  try {
    for (at::Tensor& output : outputs) output = context.Call(root, batch.inputs);
  } catch (const c10::Error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("forward failed for a first small batch: ", LastLine(error.what_without_backtrace())));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("forward failed for a first small batch: ", LastLine(error.what())));
  }
  RETURN_IF_ERROR(CheckLogits(outputs[0], input));
  const auto buffers = root.Buffers();
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (Same(buffers[i].tensor, before[i])) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("changes its buffer '", buffers[i].name,
                     "' in evaluation too; if it was traced while training, script it instead"));
  }
  if (!Same(outputs[0], outputs[1])) {
    return absl::InvalidArgumentError(
        "is random in evaluation too; if it was traced while training, script it instead");
  }
  return outputs[0];
}

std::unique_ptr<Unit> AsOneUnit(const Module& top, const std::vector<FileTensor>& tensors,
                                const std::vector<int64_t>& row) {
  std::vector<const FileTensor*> all;
  for (const FileTensor& one : tensors) all.push_back(&one);
  return std::make_unique<ScriptUnit>("", top, all, row);
}

absl::StatusOr<std::unique_ptr<Model>> MakeModel(const std::string& path, const InputSpec& input,
                                                 const std::vector<int64_t>& row) {
  ASSIGN_OR_RETURN(const Module top, LoadFile(path));
  RETURN_IF_ERROR(CheckForward(top));
  std::vector<FileTensor> tensors = FindTensors(top);
  std::vector<at::Tensor> loaded;
  for (const FileTensor& one : tensors) loaded.push_back(one.tensor);
  RETURN_IF_ERROR(CheckMemory(path, loaded));
  Problems problems;
  CheckTensors(tensors, &problems);
  if (problems.count() > 0) return absl::InvalidArgumentError(problems.Text());
  Separate(&tensors);

  const at::NoGradGuard no_grad;
  const Batch batch = ProbeBatch(input, row);
  std::unique_ptr<Unit> root = AsOneUnit(top, tensors, row);
  ASSIGN_OR_RETURN(const at::Tensor expected, Probe(*root, batch, input));
  if (IsSequence(top, tensors)) {
    auto sequence = std::make_unique<SequenceRoot>(top, tensors, row);
    // A traced forward may do more than its children.
    const auto found = Probe(*sequence, batch, input);
    if (found.ok() && Same(*found, expected)) root = std::move(sequence);
  }
  return std::make_unique<TorchscriptModel>(std::move(root), input, tensors);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> CreateTorchscript(const nlohmann::json& options, uint64_t) {
  OptionReader reader("torchscript", options);
  const std::string path = reader.Text("path");
  InputSpec input;
  std::vector<int64_t> row;
  if (reader.Has("vocab_size") || reader.Has("context")) {
    input = {.kind = InputSpec::Kind::kTokens,
             .vocab_size = reader.Size("vocab_size"),
             .context = reader.Size("context")};
  } else {
    row = reader.Sizes("inputs");
    if (row.empty()) reader.Problem("inputs: expected the shape of a row, found nothing");
    input = {.kind = InputSpec::Kind::kRows, .row_elements = 1, .classes = reader.Size("classes")};
    for (const int64_t size : row) {
      if (__builtin_mul_overflow(input.row_elements, size, &input.row_elements)) {
        reader.Problem("inputs: expected fewer numbers");
      }
    }
  }
  RETURN_IF_ERROR(reader.Finish());
  auto model = MakeModel(path, input, row);
  if (!model.ok()) return Annotate(model.status(), absl::StrCat("torchscript ", path));
  return model;
}

}  // namespace muster::models
