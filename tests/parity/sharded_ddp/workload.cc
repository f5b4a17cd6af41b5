#include "tests/parity/sharded_ddp/workload.h"

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/index_select.h"
#include "ATen/ops/item.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "nlohmann/json.hpp"
#include "worker/models/init.h"
#include "worker/models/seed.h"
#include "worker/models/spec_from_json.h"

namespace muster::parity {
namespace {

using at::Tensor;
using models::ForwardContext;
using models::Unit;

constexpr uint64_t kSeed = 5;
// The number of samples: no multiple of a global batch, so that epochs end within the steps.
constexpr int64_t kSamples = 59;

class TableDataset : public data::Dataset {
 public:
  TableDataset(Tensor inputs, Tensor targets)
      : inputs_(std::move(inputs)), targets_(std::move(targets)) {}
  int64_t size() const override { return inputs_.size(0); }
  absl::StatusOr<data::Batch> Read(std::span<const int64_t> samples) const override {
    const Tensor rows =
        at::empty({static_cast<int64_t>(samples.size())}, at::TensorOptions(at::kLong));
    std::memcpy(rows.mutable_data_ptr(), samples.data(), samples.size_bytes());
    return data::Batch{inputs_.index_select(0, rows), targets_.index_select(0, rows)};
  }
  data::Batch Blank(int64_t) const override { return {}; }  // nobody joins
  absl::Status Check(const data::Part&) const override { return absl::OkStatus(); }

 private:
  const Tensor inputs_;
  const Tensor targets_;
};

std::unique_ptr<data::Dataset> Tokens(int64_t vocab_size, int64_t context) {
  const Tensor tokens = at::empty({kSamples, context + 1}, at::TensorOptions(at::kLong));
  for (int64_t i = 0; i < tokens.numel(); ++i)
    tokens.mutable_data_ptr<int64_t>()[i] = i * i % vocab_size;
  return std::make_unique<TableDataset>(tokens.narrow(1, 0, context).contiguous(),
                                        tokens.narrow(1, 1, context).contiguous());
}

std::unique_ptr<data::Dataset> Rows(std::vector<int64_t> shape, int64_t classes) {
  shape.insert(shape.begin(), kSamples);
  const Tensor labels = at::empty({kSamples}, at::TensorOptions(at::kLong));
  for (int64_t i = 0; i < kSamples; ++i) labels.mutable_data_ptr<int64_t>()[i] = i * i % classes;
  return std::make_unique<TableDataset>(models::NormalInit(kSeed, "rows", shape, 1), labels);
}

Tensor Fresh(const std::string& name, const std::vector<int64_t>& shape) {
  return models::NormalInit(kSeed, name, shape, 0.4);
}

// A unit with a frozen and an integer parameter, and with buffers.
class Entry : public Unit {
 public:
  Entry() : Unit("entry") {
    AddParameter("entry.order", at::zeros({7}));
    ReplaceParameter(0, at::arange(6, -1, -1, at::TensorOptions(at::kLong)));
    AddParameter("entry.scale", Fresh("entry.scale", {7}));
    Tensor scale = parameter(1);
    scale.requires_grad_(false);
    AddParameter("entry.weight", Fresh("entry.weight", {13, 7}));
    AddParameter("entry.bias", Fresh("entry.bias", {13}));
    AddBuffer("entry.mean", at::zeros({7}));
    AddBuffer("entry.count", at::zeros({}, at::TensorOptions(at::kLong)));
  }
  Tensor Forward(const Tensor& x, ForwardContext& context) override {
    const Tensor ordered = x.index_select(1, parameter(0)) * parameter(1);
    if (context.training()) {
      c10::NoGradGuard no_grad;
      Tensor mean = buffer(0);
      Tensor count = buffer(1);
      mean.mul_(0.9).add_(ordered.mean(0), 0.1);
      count.add_((int64_t{1} << 40) + 1);
    }
    return at::linear(ordered, parameter(2), parameter(3)).tanh();
  }
};

// A unit that uses one weight at two places.
class Pair : public Unit {
 public:
  Pair() : Unit("pair") {
    AddParameter("pair.shared", Fresh("pair.shared", {13, 13}));
    AddParameter("pair.bias", Fresh("pair.bias", {13}));
  }
  Tensor Forward(const Tensor& x, ForwardContext&) override {
    return at::linear(at::linear(x, parameter(0)).tanh(), parameter(0), parameter(1)).tanh();
  }
};

class Factor : public Unit {
 public:
  explicit Factor(const std::string& name) : Unit(name) {
    AddParameter(name + ".weight", Fresh(name + ".weight", {13}));
    AddParameter(name + ".empty", at::zeros({0}));
  }
  Tensor Forward(const Tensor& x, ForwardContext&) override {
    return x * parameter(0) + parameter(1).sum();
  }
};

class Head : public Unit {
 public:
  explicit Head(at::ScalarType type) : Unit("head"), type_(type) {
    AddParameter("head.weight", Fresh("head.weight", {13, 3}).to(type));
    AddParameter("head.bias", Fresh("head.bias", {3}));
  }
  Tensor Forward(const Tensor& x, ForwardContext&) override {
    return x.to(type_).matmul(parameter(0)).to(at::kFloat) + parameter(1);
  }

 private:
  const at::ScalarType type_;
};

class MixedRoot : public Unit {
 public:
  explicit MixedRoot(at::ScalarType head) : Unit("") {
    for (const char* name : {"entry", "pair", "sometimes", "idle", "head"}) {
      AddChild(Make(name, head));
    }
  }
  Tensor Forward(const Tensor& x, ForwardContext& context) override {
    Tensor h = context.Call(*children()[0], x);
    h = context.Call(*children()[1], h);
    if (x.select(0, 0).select(0, 0).item<float>() > 0) h = context.Call(*children()[2], h);
    h = context.Call(*children()[1], h);
    return context.Call(*children()[4], h);
  }

 private:
  static std::unique_ptr<Unit> Make(const std::string& name, at::ScalarType head) {
    if (name == "entry") return std::make_unique<Entry>();
    if (name == "pair") return std::make_unique<Pair>();
    if (name == "head") return std::make_unique<Head>(head);
    return std::make_unique<Factor>(name);
  }
};

class MixedModel : public models::Model {
 public:
  explicit MixedModel(at::ScalarType head) : Model("mixed", std::make_unique<MixedRoot>(head)) {}

 protected:
  models::InputSpec UnitsInput() const override {
    return {.kind = models::InputSpec::Kind::kRows, .row_elements = 7, .classes = 3};
  }
};

std::unique_ptr<models::Model> FromRegistry(const std::string& kind, const std::string& options) {
  auto model = models::CreateFromJson(kind, nlohmann::json::parse(options), kSeed);
  if (!model.ok()) throw std::logic_error(model.status().ToString());
  return *std::move(model);
}

}  // namespace

Workload MakeWorkload(ModelKind kind, const WorkloadOptions& options) {
  switch (kind) {
    case ModelKind::kGpt2:
      return {
          FromRegistry("gpt2",
                       absl::StrCat(R"({"vocab_size": 29, "context": 8, "layers": 2, "heads": 2, )",
                                    R"("width": 16, "dropout": )", options.dropout, "}")),
          Tokens(29, 8)};
    case ModelKind::kLlama:
      return {
          FromRegistry(
              "llama",
              R"({"vocab_size": 29, "context": 8, "layers": 4, "heads": 4, "kv_heads": 2, )"
              R"("width": 16, "inner": 40, "rope_theta": 10000, "norm_eps": 1e-5, "tied": false})"),
          Tokens(29, 8)};
    case ModelKind::kConvnet:
      return {FromRegistry(
                  "convnet",
                  R"({"inputs": [2, 6, 6], "widths": [4, 8], "blocks": [1, 1], "classes": 5})"),
              Rows({2, 6, 6}, 5)};
    case ModelKind::kMixed:
      break;
  }
  return {std::make_unique<MixedModel>(options.head), Rows({7}, 3)};
}

}  // namespace muster::parity
