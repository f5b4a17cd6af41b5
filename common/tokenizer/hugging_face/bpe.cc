#include "common/tokenizer/hugging_face/bpe.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/status.h"
#include "common/tokenizer/hugging_face/fields.h"
#include "common/tokenizer/hugging_face/unicode.h"

namespace muster::tokenizer {
namespace {

using nlohmann::json;

// Reads one rule: "left right", or ["left", "right"].
absl::StatusOr<std::pair<std::string, std::string>> SidesOf(const json& rule) {
  const auto is_text = [](const json& one) { return one.is_string(); };
  if (rule.is_array() && rule.size() == 2 && std::all_of(rule.begin(), rule.end(), is_text)) {
    return std::pair(rule[0].get<std::string>(), rule[1].get<std::string>());
  }
  if (!rule.is_string()) return Unknown("merges", rule);
  const auto text = rule.get<std::string>();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    return Unknown("merges", rule);
  }
  return std::pair(text.substr(0, space), text.substr(space + 1));
}

absl::StatusOr<std::unordered_map<std::string, uint32_t>> VocabularyOf(const json& model) {
  const auto found = model.find("vocab");
  if (found == model.end() || !found->is_object()) {
    return absl::InvalidArgumentError("vocab: expected an object");
  }
  std::unordered_map<std::string, uint32_t> vocabulary;
  std::set<uint32_t> ids;
  for (const auto& [token, id] : found->items()) {
    const bool fits =
        id.is_number_unsigned() && id.get<uint64_t>() <= std::numeric_limits<int32_t>::max();
    if (!fits) return Unknown("vocab", id);
    if (!ids.insert(id.get<uint32_t>()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("vocab: two tokens have the id ", id.get<uint32_t>()));
    }
    vocabulary.emplace(token, id.get<uint32_t>());
  }
  return vocabulary;
}

}  // namespace

class Bpe::Word {
 public:
  void Add(uint32_t token) {
    const int number = static_cast<int>(symbols_.size());
    if (number > 0) symbols_.back().next = number;
    symbols_.push_back({token, number - 1, -1});
  }

  void Join(const std::unordered_map<uint64_t, Rule>& rules) {
    for (size_t i = 0; i + 1 < symbols_.size(); ++i) Consider(static_cast<int>(i), rules);
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      Symbol& left = symbols_[static_cast<size_t>(best.left)];
      if (left.gone || left.next < 0) continue;
      Symbol& right = symbols_[static_cast<size_t>(left.next)];
      // One of the two may have been joined with another neighbour.
      const auto rule = rules.find(Pair(left.token, right.token));
      if (rule == rules.end() || rule->second.joined != best.joined) continue;
      left.token = best.joined;
      left.next = right.next;
      right.gone = true;
      if (left.next >= 0) symbols_[static_cast<size_t>(left.next)].before = best.left;
      if (left.before >= 0) Consider(left.before, rules);
      Consider(best.left, rules);
    }
  }

  void AppendTo(std::vector<uint32_t>* tokens) const {
    for (const Symbol& one : symbols_) {
      if (!one.gone) tokens->push_back(one.token);
    }
  }

 private:
  struct Symbol {
    uint32_t token = 0;
    int before = -1;
    int next = -1;
    bool gone = false;
  };
  struct Candidate {
    uint32_t rank = 0;
    int left = 0;
    uint32_t joined = 0;
    // The queue's first element is the greatest: the earliest rule, and then the leftmost place.
    bool operator<(const Candidate& other) const {
      return std::pair(rank, left) > std::pair(other.rank, other.left);
    }
  };

  void Consider(int left, const std::unordered_map<uint64_t, Rule>& rules) {
    const Symbol& one = symbols_[static_cast<size_t>(left)];
    if (one.next < 0) return;
    const auto rule = rules.find(Pair(one.token, symbols_[static_cast<size_t>(one.next)].token));
    if (rule != rules.end()) queue_.push({rule->second.rank, left, rule->second.joined});
  }

  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate> queue_;
};

absl::StatusOr<Bpe> Bpe::Read(const json& model) {
  // Older files have no type.
  const bool untyped = model.is_object() && !model.contains("type") && model.contains("merges");
  if (TypeOf(model) != "BPE" && !untyped) {
    return Annotate(UnknownType(model, "BPE"), "model");
  }
  RETURN_IF_ERROR(Annotate(
      OnlyKeys(model,
               {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}),
      "model"));
  const json dropout = model.value("dropout", json());
  if (!dropout.is_null() && dropout != 0) return Annotate(Unknown("dropout", dropout), "model");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const json found = model.value(key, json());
    if (!found.is_null() && found != "") return Annotate(Unknown(key, found), "model");
  }
  Bpe bpe;
  auto vocabulary = VocabularyOf(model);
  if (!vocabulary.ok()) return Annotate(vocabulary.status(), "model");
  bpe.vocabulary_ = *std::move(vocabulary);
  ASSIGN_OR_RETURN(bpe.fuse_unknown_, FlagOf(model, "fuse_unk", false));
  ASSIGN_OR_RETURN(bpe.byte_fallback_, FlagOf(model, "byte_fallback", false));
  ASSIGN_OR_RETURN(bpe.ignore_merges_, FlagOf(model, "ignore_merges", false));
  if (bpe.byte_fallback_) RETURN_IF_ERROR(bpe.FindBytes());
  if (const json unknown = model.value("unk_token", json()); !unknown.is_null()) {
    const auto found = unknown.is_string() ? bpe.vocabulary_.find(unknown.get<std::string>())
                                           : bpe.vocabulary_.end();
    if (found == bpe.vocabulary_.end()) return Annotate(Unknown("unk_token", unknown), "model");
    bpe.unknown_ = found->second;
  }
  RETURN_IF_ERROR(Annotate(bpe.ReadRules(model.value("merges", json())), "model"));
  return bpe;
}

absl::Status Bpe::FindBytes() {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string name = absl::StrFormat("<0x%02X>", byte);
    const auto found = vocabulary_.find(name);
    if (found == vocabulary_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "model: byte_fallback: expected a token for each byte, found none for ", name));
    }
    bytes_.push_back(found->second);
  }
  return absl::OkStatus();
}

absl::Status Bpe::ReadRules(const json& merges) {
  if (!merges.is_array()) return absl::InvalidArgumentError("merges: expected a list");
  for (size_t i = 0; i < merges.size(); ++i) {
    const json& one = merges[i];
    // The first line of a former format of files.
    if (one.is_string() && absl::StartsWith(one.get_ref<const std::string&>(), "#version"))
      continue;
    ASSIGN_OR_RETURN(const auto sides, SidesOf(one));
    const auto left = vocabulary_.find(sides.first);
    const auto right = vocabulary_.find(sides.second);
    const auto joined = vocabulary_.find(sides.first + sides.second);
    const auto end = vocabulary_.end();
    if (left == end || right == end || joined == end) {
      return absl::InvalidArgumentError(absl::StrCat("merges: '", sides.first, "' and '",
                                                     sides.second,
                                                     "' join tokens that are not in vocab"));
    }
    // Of two rules about one pair the last one counts.
    rules_[Pair(left->second, right->second)] = {static_cast<uint32_t>(i), joined->second};
  }
  return absl::OkStatus();
}

void Bpe::AddCharacter(const std::string& character, bool* unknown_before, Word* word) const {
  if (const auto found = vocabulary_.find(character); found != vocabulary_.end()) {
    *unknown_before = false;
    return word->Add(found->second);
  }
  for (const char byte : byte_fallback_ ? character : "") {
    word->Add(bytes_[static_cast<unsigned char>(byte)]);
  }
  if (byte_fallback_) return;
  // Without a token for unknown characters, the character is left out, as in `tokenizers`.
  if (!unknown_.has_value() || (fuse_unknown_ && *unknown_before)) return;
  word->Add(*unknown_);
  *unknown_before = true;
}

void Bpe::Encode(const std::string& part, std::vector<uint32_t>* tokens) const {
  if (ignore_merges_) {
    if (const auto whole = vocabulary_.find(part); whole != vocabulary_.end()) {
      return tokens->push_back(whole->second);
    }
  }
  Word word;
  bool unknown_before = false;
  for (size_t at = 0; at < part.size();) {
    const size_t bytes = CharacterAt(part, at).bytes;
    AddCharacter(part.substr(at, bytes), &unknown_before, &word);
    at += bytes;
  }
  word.Join(rules_);
  word.AppendTo(tokens);
}

}  // namespace muster::tokenizer
