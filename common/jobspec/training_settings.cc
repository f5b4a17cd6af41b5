#include "common/jobspec/training_settings.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/field_mask_util.h>
#include <google/protobuf/util/json_util.h>

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/jobspec/changes.h"
#include "common/jobspec/jobspec.h"

namespace muster::jobspec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Values = std::map<std::string, std::string>;

// The only list of these settings. Without the settings that every file needs. Without those that
// change neither the order of the data nor the sums (strategy, device, threads, folders, limits).
constexpr const char* kSettings[] = {
    "seed",       "optimizer",     "schedule", "batch.accumulate", "batch.order",
    "batch.last", "precision",     "loss",     "clip_grad_norm",   "on_nan",
    "loss_scale", "uneven_inputs", "ema",      "trainable",
};
// The value of a message in LinesOf.
constexpr char kMessage[] = "{}";

// Removes the lists of `settings` for which the file has its own list, because MergeFrom would
// append.
void DropLists(const Message& file, Message* settings) {
  std::vector<const FieldDescriptor*> given;
  file.GetReflection()->ListFields(file, &given);
  for (const FieldDescriptor* field : given) {
    const auto& reflection = *settings->GetReflection();
    if (field->is_repeated()) {
      reflection.ClearField(settings, field);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
               reflection.HasField(*settings, field)) {
      DropLists(file.GetReflection()->GetMessage(file, field),
                reflection.MutableMessage(settings, field));
    }
  }
}

// Removes settings that do not fit another setting in the file.
void DropWhatDoesNotFit(const v1::JobSpec& file, v1::JobSpec* settings) {
  const v1::BatchSpec::Last last = file.batch().last();
  const bool last_written = last != v1::BatchSpec::LAST_UNSPECIFIED;
  if (!file.has_batch()) {
    settings->clear_batch();
  } else if (file.has_uneven_inputs()) {
    settings->mutable_batch()->clear_last();
  }
  if (last_written && last != v1::BatchSpec::UNEVEN) settings->clear_uneven_inputs();
  const bool float16 = file.precision() == v1::JobSpec::PRECISION_UNSPECIFIED
                           ? settings->precision() == v1::JobSpec::FLOAT16
                           : file.precision() == v1::JobSpec::FLOAT16;
  if (!float16) settings->clear_loss_scale();
  const auto kind = file.optimizer().kind_case();
  const bool other_kind =
      kind != v1::OptimizerSpec::KIND_NOT_SET && kind != settings->optimizer().kind_case();
  if (other_kind) settings->clear_optimizer();
}

// Removes the rules, and the whole message if nothing else is in it.
void DropRules(v1::JobSpec* settings) {
  if (!settings->has_trainable()) return;
  settings->mutable_trainable()->clear_rules();
  if (settings->trainable().refresh() != v1::TrainableSpec::MANUAL) settings->clear_trainable();
}

Values ValuesOf(const v1::JobSpec& spec) {
  Values values;
  for (const Line& line : LinesOf(TrainingSettings(spec))) values[line.path] = line.value;
  return values;
}

// Returns whether the fields of the message at this path say more than its presence.
bool HasFields(const Values& values, const std::string& path) {
  const auto next = values.upper_bound(path);
  return values.at(path) == kMessage && next != values.end() &&
         absl::StartsWith(next->first, path + ".");
}

// A value in the form of a job file. The value may be missing.
std::string Written(const Values& values, const std::string& path) {
  const auto found = values.find(path);
  if (found == values.end()) return "none";
  if (found->second == kMessage) return "given";
  return absl::StartsWith(found->second, "\"") ? found->second
                                               : absl::AsciiStrToLower(found->second);
}

std::vector<std::string> Differences(const Values& file, const Values& checkpoint) {
  Values both = file;
  both.insert(checkpoint.begin(), checkpoint.end());
  std::vector<std::string> differences;
  std::string above;  // a message in only one of the two
  for (const auto& [path, value] : both) {
    if (!above.empty() && absl::StartsWith(path, above)) continue;
    const std::string own = Written(file, path);
    const std::string other = Written(checkpoint, path);
    if (own == other) continue;
    if (value == kMessage) above = path + ".";
    differences.push_back(
        absl::StrCat(path, ": ", own, " in the job file, ", other, " in the checkpoint"));
  }
  return differences;
}

}  // namespace

void UnsetOwnEnd(v1::JobSpec* spec) {
  const uint64_t steps = UnlimitedSteps(*spec).value_or(0);
  if (!spec->has_schedule() || steps == 0) return;
  const auto unset = [steps](auto* kind) {
    if (kind->total_steps() == steps) kind->clear_total_steps();
  };
  v1::ScheduleSpec* schedule = spec->mutable_schedule();
  if (schedule->has_warmup_cosine()) unset(schedule->mutable_warmup_cosine());
  if (schedule->has_linear()) unset(schedule->mutable_linear());
  if (schedule->has_one_cycle()) unset(schedule->mutable_one_cycle());
}

v1::JobSpec TrainingSettings(const v1::JobSpec& whole) {
  v1::JobSpec spec = whole;
  UnsetOwnEnd(&spec);
  google::protobuf::FieldMask mask;
  for (const char* path : kSettings) mask.add_paths(path);
  v1::JobSpec settings;
  google::protobuf::util::FieldMaskUtil::MergeMessageTo(spec, mask, {}, &settings);
  // Removes the file of the optimizer's state, with which only that job began.
  if (settings.has_optimizer()) settings.mutable_optimizer()->clear_state();
  return settings;
}

std::string TrainingSettingsJson(const v1::JobSpec& spec) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status =
      google::protobuf::util::MessageToJsonString(TrainingSettings(spec), &json, options);
  return status.ok() ? json : std::string();
}

absl::StatusOr<v1::JobSpec> TrainingSettingsFromJson(const std::string& json) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  v1::JobSpec settings;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &settings, options);
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("settings: ", std::string(status.message().data(), status.message().size())));
  }
  return TrainingSettings(settings);
}

void SetLearningRate(double rate, v1::JobSpec* settings) {
  v1::OptimizerSpec* optimizer = settings->mutable_optimizer();
  switch (optimizer->kind_case()) {
    case v1::OptimizerSpec::kAdamw:
      return optimizer->mutable_adamw()->set_lr(rate);
    case v1::OptimizerSpec::kSgd:
      return optimizer->mutable_sgd()->set_lr(rate);
    case v1::OptimizerSpec::kLion:
      return optimizer->mutable_lion()->set_lr(rate);
    case v1::OptimizerSpec::kAdam:
      return optimizer->mutable_adam()->set_lr(rate);
    case v1::OptimizerSpec::kAdadelta:
      return optimizer->mutable_adadelta()->set_lr(rate);
    case v1::OptimizerSpec::KIND_NOT_SET:
      return settings->clear_optimizer();
  }
}

TakenSettings TakeLeftOut(const v1::JobSpec& file, const v1::JobSpec& settings) {
  TakenSettings result{.spec = settings, .taken = {}, .differing = {}};
  DropRules(&result.spec);
  DropWhatDoesNotFit(file, &result.spec);
  DropLists(file, &result.spec);
  result.spec.MergeFrom(file);
  const Values before = ValuesOf(ResolveDefaults(file));
  const Values after = ValuesOf(ResolveDefaults(result.spec));
  for (const auto& [path, value] : after) {
    const auto old = before.find(path);
    const bool same = old != before.end() && old->second == value;
    if (same || HasFields(after, path)) continue;
    result.taken.push_back(absl::StrCat(path, " ", Written(after, path)));
  }
  v1::JobSpec compared = settings;
  if (file.trainable().rules().empty()) DropRules(&compared);
  result.differing = Differences(after, ValuesOf(compared));
  return result;
}

}  // namespace muster::jobspec
