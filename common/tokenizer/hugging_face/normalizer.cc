#include "common/tokenizer/hugging_face/normalizer.h"

#include <utility>

#include "absl/strings/str_replace.h"
#include "common/overloaded/overloaded.h"
#include "common/status/status.h"
#include "common/tokenizer/hugging_face/fields.h"

namespace muster::tokenizer {
namespace {

using nlohmann::json;

absl::Status ReadInto(const json& step, std::vector<NormalStep>* steps) {
  if (step.is_null()) return absl::OkStatus();
  const std::string type = TypeOf(step);
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const json* const list, ListOf(step, "normalizers"));
    for (const json& one : *list) RETURN_IF_ERROR(ReadInto(one, steps));
    return absl::OkStatus();
  }
  constexpr std::pair<const char*, NormalForm> kForms[] = {{"NFC", NormalForm::kC},
                                                           {"NFD", NormalForm::kD},
                                                           {"NFKC", NormalForm::kKC},
                                                           {"NFKD", NormalForm::kKD}};
  for (const auto& [name, form] : kForms) {
    if (type != name) continue;
    steps->push_back(form);
    return OnlyKeys(step, {"type"});
  }
  if (type == "Prepend") {
    RETURN_IF_ERROR(OnlyKeys(step, {"type", "prepend"}));
    ASSIGN_OR_RETURN(std::string text, TextOf(step, "prepend"));
    steps->push_back(Prepend{std::move(text)});
    return absl::OkStatus();
  }
  if (type == "Replace") {
    ASSIGN_OR_RETURN(steps->emplace_back(), ReadReplace(step));
    return absl::OkStatus();
  }
  return UnknownType(step, "NFC, NFD, NFKC, NFKD, Prepend, Replace or Sequence");
}

}  // namespace

absl::StatusOr<std::vector<NormalStep>> ReadNormalSteps(const json& normalizer) {
  std::vector<NormalStep> steps;
  RETURN_IF_ERROR(Annotate(ReadInto(normalizer, &steps), "normalizer"));
  return steps;
}

absl::StatusOr<Replace> ReadReplace(const json& step) {
  RETURN_IF_ERROR(OnlyKeys(step, {"type", "pattern", "content"}));
  const auto pattern = step.find("pattern");
  if (pattern == step.end() || !pattern->is_object()) {
    return Unknown("pattern", pattern == step.end() ? json() : *pattern);
  }
  // A regular expression would need another step.
  RETURN_IF_ERROR(Annotate(OnlyKeys(*pattern, {"String"}), "pattern"));
  Replace replace;
  ASSIGN_OR_RETURN(replace.from, TextOf(*pattern, "String"));
  ASSIGN_OR_RETURN(replace.to, TextOf(step, "content"));
  if (replace.from.empty()) return Unknown("pattern", *pattern);
  return replace;
}

std::string Replaced(const std::string& text, const Replace& replace) {
  return absl::StrReplaceAll(text, {{replace.from, replace.to}});
}

std::string Apply(const std::vector<NormalStep>& steps, std::string text) {
  for (const NormalStep& step : steps) {
    text = std::visit(Overloaded{[&](NormalForm form) { return Normalized(text, form); },
                                 [&](const Prepend& prepend) {
                                   return text.empty() ? text : prepend.text + text;
                                 },
                                 [&](const Replace& replace) { return Replaced(text, replace); }},
                      step);
  }
  return text;
}

}  // namespace muster::tokenizer
