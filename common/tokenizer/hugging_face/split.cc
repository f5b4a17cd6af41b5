#include "common/tokenizer/hugging_face/split.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/overloaded/overloaded.h"
#include "common/status/status.h"
#include "common/tokenizer/hugging_face/fields.h"
#include "common/tokenizer/hugging_face/unicode.h"

namespace muster::tokenizer {
namespace {

using nlohmann::json;
using Ranges = std::vector<std::pair<size_t, size_t>>;

// A range of a text, and whether it matches.
struct Range {
  size_t begin = 0;
  size_t end = 0;
  bool matches = false;
};

// Joins neighbours as the behavior says, and leaves out what is removed.
std::vector<Range> Joined(const std::vector<Range>& ranges, Behavior behavior) {
  std::vector<Range> joined;
  bool before = false;
  switch (behavior) {
    case Behavior::kIsolated:
      return ranges;
    case Behavior::kRemoved:
      for (const Range& one : ranges) {
        if (!one.matches) joined.push_back(one);
      }
      return joined;
    case Behavior::kContiguous:
      for (const Range& one : ranges) {
        if (!joined.empty() && one.matches == before) {
          joined.back().end = one.end;
        } else {
          joined.push_back(one);
        }
        before = one.matches;
      }
      return joined;
    case Behavior::kMergedWithPrevious:
      for (const Range& one : ranges) {
        if (one.matches && !before && !joined.empty()) {
          joined.back().end = one.end;
        } else {
          joined.push_back(one);
        }
        before = one.matches;
      }
      return joined;
    case Behavior::kMergedWithNext:
      for (auto one = ranges.rbegin(); one != ranges.rend(); ++one) {
        if (one->matches && !before && !joined.empty()) {
          joined.back().begin = one->begin;
        } else {
          joined.push_back(*one);
        }
        before = one->matches;
      }
      std::reverse(joined.begin(), joined.end());
      return joined;
  }
  return ranges;
}

// Cuts the part at the matches, and appends the result.
void Cut(const Part& part, const Ranges& matches, bool invert, Behavior behavior,
         std::vector<Part>* to) {
  std::vector<Range> ranges;
  size_t done = 0;
  const auto add = [&](size_t begin, size_t end, bool matches_here) {
    if (begin < end) ranges.push_back({begin, end, matches_here != invert});
  };
  for (const auto& [begin, end] : matches) {
    add(done, begin, false);
    add(begin, end, true);
    done = end;
  }
  add(done, part.text.size(), false);
  for (const Range& one : Joined(ranges, behavior)) {
    to->push_back({part.text.substr(one.begin, one.end - one.begin), part.first && one.begin == 0});
  }
}

Ranges FindText(const std::string& text, const std::string& wanted) {
  Ranges found;
  if (wanted.empty()) return found;
  for (size_t at = 0; (at = text.find(wanted, at)) != std::string::npos; at += wanted.size()) {
    found.emplace_back(at, at + wanted.size());
  }
  return found;
}

absl::Status ApplyTo(const Part& part, const Split& step, std::vector<Part>* to) {
  if (const auto* text = std::get_if<std::string>(&step.pattern)) {
    Cut(part, FindText(part.text, *text), step.invert, step.behavior, to);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Ranges found, std::get<Pattern>(step.pattern).FindAll(part.text));
  Cut(part, found, step.invert, step.behavior, to);
  return absl::OkStatus();
}

absl::Status ApplyTo(Part part, const ByteLevel& step, std::vector<Part>* to) {
  if (step.add_prefix_space && part.text[0] != ' ') part.text.insert(0, " ");
  Ranges found;
  if (step.split.has_value()) {
    ASSIGN_OR_RETURN(found, step.split->FindAll(part.text));
  }
  std::vector<Part> parts;
  Cut(part, found, /*invert=*/false, Behavior::kIsolated, &parts);
  for (Part& one : parts) {
    std::string characters;
    for (const char byte : one.text)
      characters += CharacterOfByte(static_cast<unsigned char>(byte));
    to->push_back({std::move(characters), one.first});
  }
  return absl::OkStatus();
}

absl::Status ApplyTo(const Part& part, const Digits& step, std::vector<Part>* to) {
  Ranges digits;
  for (size_t at = 0; at < part.text.size();) {
    const Character one = CharacterAt(part.text, at);
    if (IsNumber(one.code)) digits.emplace_back(at, at + one.bytes);
    at += one.bytes;
  }
  Cut(part, digits, /*invert=*/false, step.individual ? Behavior::kIsolated : Behavior::kContiguous,
      to);
  return absl::OkStatus();
}

absl::Status ApplyTo(const Part& part, const Metaspace& step, std::vector<Part>* to) {
  Part replaced{.first = part.first};
  for (const char byte : part.text) {
    byte == ' ' ? replaced.text.append(step.replacement) : replaced.text.append(1, byte);
  }
  const bool prepends = step.prepend == Metaspace::Prepend::kAlways ||
                        (step.prepend == Metaspace::Prepend::kFirst && part.first);
  if (prepends && replaced.text.compare(0, step.replacement.size(), step.replacement) != 0) {
    replaced.text.insert(0, step.replacement);
  }
  if (step.split) {
    Cut(replaced, FindText(replaced.text, step.replacement), /*invert=*/false,
        Behavior::kMergedWithNext, to);
  } else {
    to->push_back(std::move(replaced));
  }
  return absl::OkStatus();
}

absl::StatusOr<SplitStep> ReadSplit(const json& step) {
  RETURN_IF_ERROR(OnlyKeys(step, {"type", "pattern", "behavior", "invert"}));
  const json pattern = step.value("pattern", json());
  Split split{.pattern = std::string()};
  if (pattern.is_object() && pattern.size() == 1 && pattern.begin().value().is_string()) {
    const auto text = pattern.begin().value().get<std::string>();
    if (pattern.begin().key() == "Regex") {
      ASSIGN_OR_RETURN(split.pattern, Pattern::Compile(text));
    } else if (pattern.begin().key() == "String") {
      split.pattern = text;
    } else {
      return Unknown("pattern", pattern);
    }
  } else {
    return Unknown("pattern", pattern);
  }
  constexpr std::pair<const char*, Behavior> kBehaviors[] = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous}};
  const json behavior = step.value("behavior", json());
  const auto* found = std::find_if(std::begin(kBehaviors), std::end(kBehaviors),
                                   [&](const auto& one) { return behavior == one.first; });
  if (found == std::end(kBehaviors)) return Unknown("behavior", behavior);
  split.behavior = found->second;
  ASSIGN_OR_RETURN(split.invert, FlagOf(step, "invert", false));
  return split;
}

absl::StatusOr<SplitStep> ReadByteLevel(const json& step) {
  RETURN_IF_ERROR(OnlyKeys(step, {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  // The expression of GPT-2 (Radford et al. 2019).
  constexpr char kGpt2[] =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  ByteLevel byte_level;
  ASSIGN_OR_RETURN(byte_level.add_prefix_space, FlagOf(step, "add_prefix_space", true));
  ASSIGN_OR_RETURN(const bool splits, FlagOf(step, "use_regex", true));
  if (splits) {
    ASSIGN_OR_RETURN(byte_level.split, Pattern::Compile(kGpt2));
  }
  return byte_level;
}

bool IsOneCharacter(const json& text) {
  if (!text.is_string() || text == "") return false;
  const auto& found = text.get_ref<const std::string&>();
  return CharacterAt(found, 0).bytes == found.size();
}

absl::StatusOr<SplitStep> ReadMetaspace(const json& step) {
  RETURN_IF_ERROR(OnlyKeys(
      step, {"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"}));
  Metaspace metaspace;
  const json replacement = step.value("replacement", json("\xE2\x96\x81"));
  if (!IsOneCharacter(replacement)) return Unknown("replacement", replacement);
  metaspace.replacement = replacement.get<std::string>();
  // Files of older versions have add_prefix_space in place of prepend_scheme, too.
  ASSIGN_OR_RETURN(const bool adds, FlagOf(step, "add_prefix_space", true));
  if (!adds && !step.contains("prepend_scheme")) return Unknown("add_prefix_space", false);
  const json scheme = step.value("prepend_scheme", json("always"));
  using Prepend = Metaspace::Prepend;
  if (scheme == "always") {
    metaspace.prepend = Prepend::kAlways;
  } else if (scheme == "first") {
    metaspace.prepend = Prepend::kFirst;
  } else if (scheme == "never") {
    metaspace.prepend = Prepend::kNever;
  } else {
    return Unknown("prepend_scheme", scheme);
  }
  ASSIGN_OR_RETURN(metaspace.split, FlagOf(step, "split", true));
  return metaspace;
}

absl::Status ReadInto(const json& step, std::vector<SplitStep>* steps) {
  if (step.is_null()) return absl::OkStatus();
  const std::string type = TypeOf(step);
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const json* const list, ListOf(step, "pretokenizers"));
    for (const json& one : *list) RETURN_IF_ERROR(ReadInto(one, steps));
    return absl::OkStatus();
  }
  if (type == "Split") {
    ASSIGN_OR_RETURN(steps->emplace_back(), ReadSplit(step));
  } else if (type == "ByteLevel") {
    ASSIGN_OR_RETURN(steps->emplace_back(), ReadByteLevel(step));
  } else if (type == "Metaspace") {
    ASSIGN_OR_RETURN(steps->emplace_back(), ReadMetaspace(step));
  } else if (type == "Digits") {
    RETURN_IF_ERROR(OnlyKeys(step, {"type", "individual_digits"}));
    ASSIGN_OR_RETURN(const bool individual, FlagOf(step, "individual_digits", false));
    steps->push_back(Digits{individual});
  } else {
    return UnknownType(step, "ByteLevel, Digits, Metaspace, Sequence or Split");
  }
  return absl::OkStatus();
}

std::array<std::string, 256> CharactersOfBytes() {
  std::array<std::string, 256> characters;
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
                        (byte >= 0xAE && byte <= 0xFF);
    AppendCharacter(itself ? byte : next++, &characters[byte]);
  }
  return characters;
}

}  // namespace

absl::StatusOr<std::vector<SplitStep>> ReadSplitSteps(const json& pre_tokenizer) {
  std::vector<SplitStep> steps;
  RETURN_IF_ERROR(Annotate(ReadInto(pre_tokenizer, &steps), "pre_tokenizer"));
  return steps;
}

absl::Status Apply(const std::vector<SplitStep>& steps, std::vector<Part>* parts) {
  for (const SplitStep& step : steps) {
    std::vector<Part> cut;
    for (const Part& part : *parts) {
      if (part.text.empty()) continue;
      RETURN_IF_ERROR(std::visit([&](const auto& one) { return ApplyTo(part, one, &cut); }, step));
    }
    *parts = std::move(cut);
  }
  return absl::OkStatus();
}

const std::string& CharacterOfByte(unsigned char byte) {
  static const auto& characters = *new std::array<std::string, 256>(CharactersOfBytes());
  return characters[byte];
}

}  // namespace muster::tokenizer
