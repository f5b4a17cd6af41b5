#include "common/optimizerfile/optimizer_source.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/filekind/file_kind.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"
#include "common/torchfile/pickle_document.h"
#include "nlohmann/json.hpp"

namespace muster::optimizerfile {
namespace {

using manifest::OptimizerSettings;
using manifest::ParameterRecord;
using torchfile::PickleDocument;
using torchfile::TensorValue;
using Kind = PickleDocument::Kind;
using Node = PickleDocument::Node;

// The numbers, with enough digits to distinguish them.
std::string Numbers(const std::vector<double>& values) {
  std::vector<std::string> texts;
  for (const double value : values) texts.push_back(nlohmann::json(value).dump());
  const std::string text = absl::StrJoin(texts, ", ");
  return values.size() == 1 ? text : absl::StrCat("(", text, ")");
}

// The longest name of a parameter. A hostile file may use a long name many times.
constexpr size_t kLongestName = 1000;

// The settings of a group of the file, by their names in the job file.
using FoundSettings = std::map<std::string, std::vector<double>>;

// `kind`: the kind of the file's group; empty: the file does not say it.
void CompareKinds(const std::string& kind, const std::string& of_job, const std::string& group,
                  std::vector<std::string>* differences) {
  if (kind.empty() || kind.size() > kLongestName || kind == of_job) return;
  differences->push_back(absl::StrCat(group, ": the file has the optimizer ", kind,
                                      ", the job has ", of_job, "; the job's counts"));
}

void Compare(const FoundSettings& found, const OptimizerSettings& of_job, const std::string& group,
             std::vector<std::string>* differences) {
  for (const auto& [name, values] : of_job) {
    const auto in_file = found.find(name);
    if (in_file == found.end() || in_file->second == values) continue;
    differences->push_back(absl::StrCat(group, ": the file has ", name, " ",
                                        Numbers(in_file->second), ", the job has ", Numbers(values),
                                        "; the job's counts"));
  }
}

bool IsContiguous(const TensorValue& tensor) {
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) return true;
  int64_t stride = 1;  // at most the number of elements of the storage
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] == 1) continue;
    if (tensor.strides[i] != stride) return false;
    stride *= tensor.shape[i];
  }
  return true;
}

}  // namespace

// Reads a torch file.
class TorchReader {
 public:
  TorchReader(const manifest::OptimizerRecord& optimizer,
              const std::vector<ParameterRecord>& parameters, OptimizerSource* source)
      : optimizer_(optimizer),
        parameters_(parameters),
        archive_(source->archive_[0]),
        document_(archive_.document()),
        source_(source) {}

  absl::Status Read() {
    const Node* const root = Of(document_.root, Kind::kDict);
    const Node* const state = root == nullptr ? nullptr : Find(*root, "state", Kind::kDict);
    const Node* const groups = root == nullptr ? nullptr : Find(*root, "param_groups", Kind::kList);
    if (state == nullptr || groups == nullptr) {
      return absl::InvalidArgumentError(
          "expected the state_dict() of an optimizer, {\"state\": {...}, \"param_groups\": "
          "[...]}, found something else");
    }
    for (size_t group = 0; group < groups->items.size(); ++group) {
      const Node* const settings = Of(groups->items[group], Kind::kDict);
      const Node* const members =
          settings == nullptr ? nullptr : Find(*settings, "params", Kind::kList);
      if (members == nullptr || !seen_.insert(settings).second || !seen_.insert(members).second) {
        return absl::InvalidArgumentError(absl::StrCat(
            "param_groups[", group, "]: expected a dict of its own with a list 'params'"));
      }
      RETURN_IF_ERROR(NameMembers(group, groups->items.size(), *settings, *members));
    }
    for (size_t i = 0; i < state->items.size(); i += 2) {
      RETURN_IF_ERROR(ReadParameter(state->items[i], state->items[i + 1]));
    }
    return absl::OkStatus();
  }

 private:
  const Node* Of(size_t number, Kind kind) const {
    const Node& node = document_.nodes[number];
    return node.kind == kind ? &node : nullptr;
  }
  // The number of the value of the last key with this text; null if there is none.
  const size_t* FindAny(const Node& dict, const std::string& key) const {
    for (size_t i = dict.items.size(); i >= 2; i -= 2) {
      const Node* const text = Of(dict.items[i - 2], Kind::kText);
      if (text != nullptr && text->text == key) return &dict.items[i - 1];
    }
    return nullptr;
  }
  // The value of the last key with this text, if it is of this kind.
  const Node* Find(const Node& dict, const std::string& key, Kind kind) const {
    const size_t* const number = FindAny(dict, key);
    return number == nullptr ? nullptr : Of(*number, kind);
  }

  // A key of a parameter as a text that no other key has; empty if it is not such a key.
  std::string KeyOf(size_t number) const {
    const Node& node = document_.nodes[number];
    if (node.kind == Kind::kInt) return absl::StrCat(node.integer);
    return node.kind == Kind::kText ? "'" + node.text : "";
  }

  // Finds out which parameters belong to a group.
  absl::Status NameMembers(size_t group, size_t groups, const Node& settings, const Node& members) {
    const Node* const names = Find(settings, "param_names", Kind::kList);
    if (names != nullptr && names->items.size() != members.items.size()) {
      return absl::InvalidArgumentError(absl::StrCat("param_groups[", group, "]: expected ",
                                                     members.items.size(), " param_names, found ",
                                                     names->items.size()));
    }
    const bool by_position =
        names == nullptr && !members.items.empty() && Of(members.items[0], Kind::kInt) != nullptr;
    const std::vector<std::string> of_job =
        by_position ? OfJob(group, groups) : std::vector<std::string>();
    std::string first;
    for (size_t i = 0; i < members.items.size(); ++i) {
      const std::string key = KeyOf(members.items[i]);
      std::string name;
      if (const Node* const text = Of(members.items[i], Kind::kText); text != nullptr) {
        name = text->text;
      } else if (names != nullptr) {
        const Node* const text_of_name = Of(names->items[i], Kind::kText);
        name = text_of_name == nullptr ? "" : text_of_name->text;
      } else if (of_job.size() == members.items.size()) {
        name = of_job[i];
      } else {
        return absl::InvalidArgumentError(absl::StrCat(
            "param_groups[", group, "] has no param_names, so its ", members.items.size(),
            " parameters must be those of the job",
            groups == 1 ? "" : absl::StrCat("'s group ", group, " of ", groups), ", which are ",
            of_job.size(),
            "; save with names (torch.optim.Optimizer.state_dict() of named_parameters())"));
      }
      if (key.empty() || name.empty() || name.size() > kLongestName) {
        return absl::InvalidArgumentError(
            absl::StrCat("param_groups[", group, "].params[", i, "]: expected a number or a name"));
      }
      if (i == 0) first = name;
      if (!assigned_.insert(name).second || !names_.emplace(key, name).second) {
        return absl::InvalidArgumentError(absl::StrCat("param_groups[", group, "].params[", i,
                                                       "]: parameter '", name,
                                                       "' is in the groups twice"));
      }
    }
    CompareGroup(group, settings, first);
    return absl::OkStatus();
  }

  // The job's parameters in place of a group without names.
  std::vector<std::string> OfJob(size_t group, size_t groups) const {
    std::vector<std::string> names;
    if (groups != 1 && groups != optimizer_.groups.size()) return names;
    for (const ParameterRecord& parameter : parameters_) {
      if (groups == 1 || parameter.group == static_cast<int64_t>(group)) {
        names.push_back(parameter.name);
      }
    }
    return names;
  }

  // Compares the settings of a group with the job's settings for the first parameter of the group.
  void CompareGroup(size_t group, const Node& settings, const std::string& first) {
    const auto parameter =
        std::find_if(parameters_.begin(), parameters_.end(),
                     [&](const ParameterRecord& each) { return each.name == first; });
    if (parameter == parameters_.end()) return;
    const OptimizerSettings& of_job = optimizer_.groups[parameter->group];
    const std::string title = absl::StrCat("param_groups[", group, "]");
    if (const Node* const kind = Find(settings, "optimizer", Kind::kText); kind != nullptr) {
      CompareKinds(kind->text, optimizer_.KindOf(parameter->group), title, &source_->differences_);
    }
    FoundSettings found;
    for (const auto& [name, values] : of_job) {
      // The schedule changes lr, so initial_lr is compared.
      const size_t* number = name == "lr" ? FindAny(settings, "initial_lr") : nullptr;
      if (number == nullptr) number = FindAny(settings, name);
      if (number == nullptr) continue;
      std::vector<double> in_file = NumbersOf(*number);
      if (!in_file.empty()) found[name] = std::move(in_file);
    }
    Compare(found, of_job, title, &source_->differences_);
  }

  std::vector<double> NumbersOf(size_t number) const {
    const Node& node = document_.nodes[number];
    switch (node.kind) {
      case Kind::kBool:
      case Kind::kInt:
        return {static_cast<double>(node.integer)};
      case Kind::kFloat:
        return {node.number};
      case Kind::kTuple:
      case Kind::kList: {
        std::vector<double> all;
        if (node.items.size() > 2) return {};  // no setting has more
        for (const size_t item : node.items) {
          const Node& one = document_.nodes[item];
          if (one.kind != Kind::kFloat && one.kind != Kind::kInt) return {};
          all.push_back(one.kind == Kind::kInt ? static_cast<double>(one.integer) : one.number);
        }
        return all;
      }
      default:
        return {};
    }
  }

  absl::Status ReadParameter(size_t key, size_t value) {
    const auto name = names_.find(KeyOf(key));
    const Node* const slots = Of(value, Kind::kDict);
    if (name == names_.end() || slots == nullptr || !seen_.insert(slots).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("state: expected a dict for each parameter of param_groups, found ",
                       name == names_.end() ? "a parameter that is in no group"
                       : slots == nullptr   ? "another value"
                                            : "one dict for two parameters"));
    }
    for (size_t i = 0; i < slots->items.size(); i += 2) {
      const Node* const slot = Of(slots->items[i], Kind::kText);
      if (slot == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("state of '", name->second, "': expected texts as keys"));
      }
      RETURN_IF_ERROR(ReadSlot(name->second, slot->text, slots->items[i + 1]));
    }
    return absl::OkStatus();
  }

  absl::Status ReadSlot(const std::string& parameter, const std::string& slot, size_t number) {
    const Node& node = document_.nodes[number];
    if (node.kind == Kind::kNone) return absl::OkStatus();  // momentum_buffer before the first step
    auto& slots = source_->state_[parameter];
    if (slot.size() > kLongestName) {
      return absl::InvalidArgumentError(absl::StrCat("state of '", parameter, "': a long key"));
    }
    if (node.kind == Kind::kTensor) {
      const TensorValue& tensor = document_.tensors[node.tensor];
      if (!IsContiguous(tensor)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "state ", slot, " of '", parameter, "': expected a contiguous tensor, found strides [",
            absl::StrJoin(tensor.strides, ", "), "]; call contiguous() before it is saved"));
      }
      ASSIGN_OR_RETURN(const auto extent, archive_.Storage(tensor));
      slots[slot] = StoredValues{
          tensor.dtype, tensor.shape,
          archive_.data(extent) + tensor.offset * safetensors::ElementSize(tensor.dtype)};
      return absl::OkStatus();
    }
    const std::vector<double> values = NumbersOf(number);
    if (values.size() != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("state ", slot, " of '", parameter, "': expected a tensor or a number"));
    }
    slots[slot] = values[0];
    return absl::OkStatus();
  }

  const manifest::OptimizerRecord& optimizer_;
  const std::vector<ParameterRecord>& parameters_;
  const torchfile::TorchArchive& archive_;
  const PickleDocument& document_;
  OptimizerSource* const source_;
  std::map<std::string, std::string> names_;  // of parameters, by KeyOf
  std::set<std::string> assigned_;            // their names
  // Dicts and lists that were read. Each is read once, so the cost of a hostile file is limited by
  // its length.
  std::set<const Node*> seen_;
};

// Reads a safetensors file of Muster.
class SafetensorsReader {
 public:
  static absl::Status Read(const manifest::OptimizerRecord& optimizer,
                           const std::vector<ParameterRecord>& parameters,
                           OptimizerSource* source) {
    const safetensors::File& file = source->safetensors_[0];
    for (const safetensors::Entry& entry : file.header().entries) {
      const size_t slash = entry.name.find('/');
      if (slash == std::string::npos) {
        return absl::InvalidArgumentError(
            absl::StrCat("expected entries 'slot/parameter', found '", entry.name, "'"));
      }
      source->state_[entry.name.substr(slash + 1)][entry.name.substr(0, slash)] =
          StoredValues{entry.dtype, entry.shape, file.data(entry)};
    }
    const auto described = file.header().metadata.find("muster_optimizer");
    if (described == file.header().metadata.end()) return absl::OkStatus();
    try {
      CompareAll(nlohmann::json::parse(described->second), optimizer, parameters,
                 &source->differences_);
    } catch (const nlohmann::json::exception& error) {
      return absl::InvalidArgumentError(
          absl::StrCat("the metadata muster_optimizer: ", error.what()));
    }
    return absl::OkStatus();
  }

 private:
  // Compares each pair of a group of the file and a group of the job that share a parameter.
  static void CompareAll(const nlohmann::json& json, const manifest::OptimizerRecord& optimizer,
                         const std::vector<ParameterRecord>& parameters,
                         std::vector<std::string>* differences) {
    std::map<std::string, int64_t> of_job;
    for (const ParameterRecord& parameter : parameters) of_job[parameter.name] = parameter.group;
    std::vector<FoundSettings> groups;
    for (const nlohmann::json& group : json.at("groups")) {
      groups.push_back(group.get<FoundSettings>());
    }
    std::vector<std::string> kinds(groups.size(), json.value("kind", ""));
    if (json.contains("kinds")) json["kinds"].get_to(kinds);
    kinds.resize(groups.size());
    std::set<std::pair<size_t, int64_t>> compared;
    for (const nlohmann::json& parameter : json.at("parameters")) {
      const auto own = of_job.find(parameter.at("name").get<std::string>());
      const auto group = parameter.at("group").get<size_t>();
      if (own == of_job.end() || group >= groups.size()) continue;
      if (!compared.emplace(group, own->second).second) continue;
      const std::string title = absl::StrCat("group ", group);
      CompareKinds(kinds[group], optimizer.KindOf(own->second), title, differences);
      Compare(groups[group], optimizer.groups[own->second], title, differences);
    }
  }
};

absl::StatusOr<OptimizerSource> OptimizerSource::Open(
    const std::string& path, const manifest::OptimizerRecord& optimizer,
    const std::vector<ParameterRecord>& parameters) {
  OptimizerSource source;
  if (absl::EndsWith(path, ".safetensors")) {
    ASSIGN_OR_RETURN(safetensors::File file,
                     safetensors::File::Open(path, filekind::Wanted::kOptimizerState));
    source.safetensors_.push_back(std::move(file));
    RETURN_IF_ERROR(Annotate(SafetensorsReader::Read(optimizer, parameters, &source), path));
  } else {
    ASSIGN_OR_RETURN(torchfile::TorchArchive archive, torchfile::TorchArchive::Open(path));
    source.archive_.push_back(std::move(archive));
    RETURN_IF_ERROR(Annotate(TorchReader(optimizer, parameters, &source).Read(), path));
  }
  return source;
}

}  // namespace muster::optimizerfile
