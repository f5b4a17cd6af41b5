#include "common/tokenizer/hugging_face/added_tokens.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/safetensors/strict_json.h"
#include "common/status/status.h"
#include "common/tokenizer/hugging_face/fields.h"
#include "common/tokenizer/hugging_face/unicode.h"

namespace muster::tokenizer {
namespace {

using nlohmann::json;

absl::StatusOr<AddedToken> ReadOne(const json& one) {
  RETURN_IF_ERROR(
      OnlyKeys(one, {"id", "content", "special", "single_word", "lstrip", "rstrip", "normalized"}));
  AddedToken token;
  const json id = one.value("id", json());
  const bool fits =
      id.is_number_unsigned() && id.get<uint64_t>() <= std::numeric_limits<int32_t>::max();
  if (!fits) return Unknown("id", id);
  token.id = id.get<uint32_t>();
  ASSIGN_OR_RETURN(token.content, TextOf(one, "content"));
  ASSIGN_OR_RETURN(token.special, FlagOf(one, "special", false));
  ASSIGN_OR_RETURN(const bool single_word, FlagOf(one, "single_word", false));
  if (single_word) return Unknown("single_word", true);
  ASSIGN_OR_RETURN(token.lstrip, FlagOf(one, "lstrip", false));
  ASSIGN_OR_RETURN(token.rstrip, FlagOf(one, "rstrip", false));
  ASSIGN_OR_RETURN(token.normalized, FlagOf(one, "normalized", !token.special));
  return token;
}

}  // namespace

absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(
    const json& added_tokens, const std::unordered_map<std::string, uint32_t>& vocabulary) {
  std::vector<AddedToken> tokens;
  if (added_tokens.is_null()) return tokens;
  if (!added_tokens.is_array()) {
    return absl::InvalidArgumentError("added_tokens: expected a list");
  }
  std::unordered_map<std::string, uint32_t> ids;
  uint64_t next = vocabulary.size();
  for (const json& one : added_tokens) {
    auto token = ReadOne(one);
    if (!token.ok()) return Annotate(token.status(), "added_tokens");
    if (token->content.empty()) continue;
    const auto known = vocabulary.find(token->content);
    const uint64_t id = known != vocabulary.end() ? known->second : next;
    if (!ids.emplace(token->content, id).second || id != token->id) {
      return absl::InvalidArgumentError(
          absl::StrCat("added_tokens: ", safetensors::Shown(token->content), " has the id ",
                       token->id, "; expected ", id, ", once"));
    }
    next = std::max(next, id + 1);
    tokens.push_back(*std::move(token));
  }
  return tokens;
}

TokenFinder::TokenFinder(std::vector<AddedToken> tokens) {
  for (AddedToken& one : tokens) tokens_[one.content[0]].push_back(std::move(one));
  for (auto& [first, list] : tokens_) {
    std::stable_sort(list.begin(), list.end(), [](const AddedToken& a, const AddedToken& b) {
      return a.content.size() > b.content.size();
    });
  }
}

const AddedToken* TokenFinder::LongestAt(const std::string& text, size_t at) const {
  const auto list = tokens_.find(text[at]);
  if (list == tokens_.end()) return nullptr;
  for (const AddedToken& one : list->second) {
    if (text.compare(at, one.content.size(), one.content) == 0) return &one;
  }
  return nullptr;
}

std::vector<Piece> TokenFinder::Find(const std::string& text) const {
  std::vector<Piece> pieces;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* const token = LongestAt(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->content.size();
    at = end;
    while (token->lstrip && begin > done && IsSpace(CharacterBefore(text, begin).code)) {
      begin -= CharacterBefore(text, begin).bytes;
    }
    while (token->rstrip && end < text.size() && IsSpace(CharacterAt(text, end).code)) {
      end += CharacterAt(text, end).bytes;
    }
    if (done < begin) pieces.push_back({text.substr(done, begin - done), std::nullopt});
    pieces.push_back({"", token->id});
    done = end;
  }
  if (done < text.size()) pieces.push_back({text.substr(done), std::nullopt});
  return pieces;
}

}  // namespace muster::tokenizer
