#include "common/optimizerfile/optimizer_file.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"
#include "common/torchfile/pickle_writer.h"
#include "nlohmann/json.hpp"

namespace muster::optimizerfile {
namespace {

using torchfile::PickleWriter;

uint64_t BytesOf(const Item& item) {
  uint64_t elements = 1;
  for (const int64_t size : item.shape) elements *= size;
  return elements * sizeof(float);
}

constexpr std::string_view kKinds[] = {"adamw", "adam", "sgd", "lion", "adadelta"};

absl::Status Check(const Contents& contents) {
  std::map<std::string, bool> known;
  for (const auto& parameter : contents.parameters) {
    known[parameter.name] = true;
    if (parameter.group >= 0 &&
        parameter.group < static_cast<int64_t>(contents.optimizer.groups.size())) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter '", parameter.name, "': expected one of ", contents.optimizer.groups.size(),
        " groups of the optimizer, found group ", parameter.group));
  }
  for (const Item& item : contents.items) {
    if (known.contains(item.parameter)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("state ", item.slot, "/", item.parameter, ": there is no such parameter"));
  }
  for (size_t group = 0; group < contents.optimizer.groups.size(); ++group) {
    const std::string& kind = contents.optimizer.KindOf(group);
    if (std::find(std::begin(kKinds), std::end(kKinds), kind) != std::end(kKinds)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer: expected adamw, adam, sgd, lion or adadelta, found '", kind, "'"));
  }
  return absl::OkStatus();
}

void WriteSetting(const std::string& name, const std::vector<double>& values,
                  PickleWriter* pickle) {
  pickle->Text(name);
  if (name == "nesterov") return pickle->Bool(values[0] != 0);
  if (values.size() == 1) return pickle->Float(values[0]);
  pickle->BeginTuple();
  for (const double value : values) pickle->Float(value);
  pickle->EndTuple();
}

// Writes the other settings in each group of the torch.optim optimizers, as of PyTorch 2.13.
void WriteDefaults(const std::string& kind, PickleWriter* pickle) {
  const auto write = [&](const char* name, bool value) {
    pickle->Text(name);
    pickle->Bool(value);
  };
  if (kind == "adamw" || kind == "adam") {
    write("amsgrad", false);
    write("capturable", false);
    write("decoupled_weight_decay", kind == "adamw");
  }
  if (kind == "sgd") {
    pickle->Text("dampening");
    pickle->Float(0);
  }
  if (kind == "lion") return;  // torch.optim has no Lion
  if (kind == "adadelta") write("capturable", false);
  write("maximize", false);
  write("differentiable", false);
  for (const char* choice : {"foreach", "fused"}) {
    if (kind == "adadelta" && choice == std::string_view("fused")) continue;  // it has no `fused`
    pickle->Text(choice);
    pickle->None();
  }
}

void WriteGroup(const Contents& contents, size_t group, Key key, PickleWriter* pickle) {
  pickle->BeginDict();
  for (const auto& [name, values] : contents.optimizer.groups[group]) {
    if (name == "lr") {
      WriteSetting("lr", {values[0] * contents.schedule_factor}, pickle);
      WriteSetting("initial_lr", values, pickle);
    } else {
      WriteSetting(name, values, pickle);
    }
  }
  const std::string& kind = contents.optimizer.KindOf(group);
  WriteDefaults(kind, pickle);
  if (!contents.optimizer.kinds.empty()) {
    pickle->Text("optimizer");
    pickle->Text(kind);
  }
  for (const bool names : {false, true}) {
    pickle->Text(names ? "param_names" : "params");
    pickle->BeginList();
    for (size_t i = 0; i < contents.parameters.size(); ++i) {
      if (contents.parameters[i].group != static_cast<int64_t>(group)) continue;
      if (names || key == Key::kName) {
        pickle->Text(contents.parameters[i].name);
      } else {
        pickle->Int(static_cast<int64_t>(i));
      }
    }
    pickle->EndList();
  }
  pickle->EndDict();
}

// Item i has storage i.
std::string Pickled(const Contents& contents, Key key) {
  std::map<std::string, std::vector<size_t>> items;  // by parameter
  for (size_t i = 0; i < contents.items.size(); ++i) {
    items[contents.items[i].parameter].push_back(i);
  }
  PickleWriter pickle;
  pickle.BeginDict();
  pickle.Text("state");
  pickle.BeginDict();
  for (size_t i = 0; i < contents.parameters.size(); ++i) {
    const std::string& name = contents.parameters[i].name;
    const auto own = items.find(name);
    if (own == items.end()) continue;
    if (key == Key::kName) {
      pickle.Text(name);
    } else {
      pickle.Int(static_cast<int64_t>(i));
    }
    pickle.BeginDict();
    for (const size_t item : own->second) {
      pickle.Text(contents.items[item].slot);
      pickle.Float32Tensor(absl::StrCat(item), contents.items[item].shape);
    }
    pickle.EndDict();
  }
  pickle.EndDict();
  pickle.Text("param_groups");
  pickle.BeginList();
  for (size_t group = 0; group < contents.optimizer.groups.size(); ++group) {
    WriteGroup(contents, group, key, &pickle);
  }
  pickle.EndList();
  pickle.EndDict();
  return pickle.Finish();
}

// The settings and parameters, in the form of a checkpoint's manifest.
std::string Described(const Contents& contents) {
  nlohmann::ordered_json json = {{"kind", contents.optimizer.kind},
                                 {"schedule_factor", contents.schedule_factor}};
  nlohmann::ordered_json& groups = json["groups"] = nlohmann::ordered_json::array();
  for (const auto& settings : contents.optimizer.groups) {
    nlohmann::ordered_json group = nlohmann::ordered_json::object();
    for (const auto& [name, values] : settings) group[name] = values;
    groups.push_back(std::move(group));
  }
  if (!contents.optimizer.kinds.empty()) json["kinds"] = contents.optimizer.kinds;
  nlohmann::ordered_json& parameters = json["parameters"] = nlohmann::ordered_json::array();
  for (const auto& parameter : contents.parameters) {
    parameters.push_back({{"name", parameter.name},
                          {"shape", parameter.shape},
                          {"trainable", parameter.trainable},
                          {"ever_trained", parameter.ever_trained},
                          {"group", parameter.group}});
  }
  return json.dump();
}

}  // namespace

absl::StatusOr<OptimizerFile> OptimizerFile::Plan(const Contents& contents, Format format,
                                                  Key key) {
  RETURN_IF_ERROR(Check(contents));
  OptimizerFile file;
  if (format == Format::kTorch) {
    std::vector<uint64_t> bytes;
    for (const Item& item : contents.items) bytes.push_back(BytesOf(item));
    file.torch_.emplace_back(Pickled(contents, key), bytes);
    file.size_ = file.torch_[0].size();
    for (size_t i = 0; i < bytes.size(); ++i) {
      file.offsets_.push_back(file.torch_[0].storage_offset(i));
    }
    return file;
  }
  std::vector<safetensors::Entry> entries;
  for (const Item& item : contents.items) {
    entries.push_back({item.slot + "/" + item.parameter, safetensors::DType::kF32, item.shape});
  }
  ASSIGN_OR_RETURN(
      safetensors::FilePlan plan,
      safetensors::Plan(std::move(entries),
                        {{"format", "pt"}, {"muster_optimizer", Described(contents)}}));
  file.header_ = std::move(plan.prefix);
  file.size_ = file.header_.size();
  for (const safetensors::Entry& entry : plan.entries) {
    file.offsets_.push_back(file.header_.size() + entry.begin);
    file.size_ = file.header_.size() + entry.end;
  }
  return file;
}

std::vector<torchfile::Fragment> OptimizerFile::Fragments(const std::vector<uint32_t>& crcs) const {
  if (!torch_.empty()) return torch_[0].Fragments(crcs);
  return {{0, header_}};
}

}  // namespace muster::optimizerfile
