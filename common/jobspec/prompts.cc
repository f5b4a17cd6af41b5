#include "common/jobspec/prompts.h"

#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/filekind/file_kind.h"
#include "common/files/mapped_file.h"
#include "common/problems/problems.h"
#include "common/safetensors/strict_json.h"
#include "common/status/status.h"
#include "common/tokenizer/bytes.h"
#include "nlohmann/json.hpp"

namespace muster::jobspec {
namespace {

constexpr char kShape[] =
    "expected a list of lists of token ids, such as [[1, 2], [3]], or of texts";

// The value that was found, short enough for a message.
std::string Found(const nlohmann::json& value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "a mapping";
  constexpr size_t kShown = 40;
  const std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text.size() <= kShown ? text : absl::StrCat(text.substr(0, kShown), "...");
}

std::string NameOf(size_t prompt) { return absl::StrCat("prompts[", prompt, "]"); }

struct Limits {
  int64_t vocabulary = 0;
  int64_t context = 0;
};
std::optional<Limits> LimitsOf(const v1::ModelSpec& model) {
  if (model.has_gpt2()) return Limits{model.gpt2().vocab_size(), model.gpt2().context()};
  if (model.has_llama()) return Limits{model.llama().vocab_size(), model.llama().context()};
  return std::nullopt;
}

void CheckPrompt(const std::string& name, const std::vector<int64_t>& prompt, const Limits& limits,
                 int64_t max_tokens, Problems* problems) {
  if (prompt.empty())
    return problems->Add(absl::StrCat(name, ": is empty; allowed: 1 token or more"));
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < limits.vocabulary) continue;
    problems->Add(absl::StrCat(name, ": token ", i, ": found ", prompt[i], "; allowed: 0 to ",
                               limits.vocabulary - 1, ", the model's vocabulary"));
    break;
  }
  const auto size = static_cast<int64_t>(prompt.size());
  if (size + max_tokens > limits.context) {
    problems->Add(absl::StrCat(name, ": found ", size, " tokens and ", max_tokens,
                               " new ones (max_tokens); allowed: together at most ", limits.context,
                               ", the model's context"));
  }
}

}  // namespace

absl::StatusOr<Prompts> ParsePrompts(const std::string& text) {
  const auto json =
      safetensors::ParseStrictJson(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  if (!json.ok()) return absl::InvalidArgumentError(json.status().message());
  if (!json->is_array()) {
    return absl::InvalidArgumentError(absl::StrCat(kShape, ", found ", Found(*json)));
  }
  Prompts prompts;
  for (const nlohmann::json& one : *json) {
    const std::string name = NameOf(prompts.size());
    if (one.is_string()) {
      prompts.emplace_back(one.get<std::string>());
      continue;
    }
    if (!one.is_array()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", kShape, ", found ", Found(one)));
    }
    std::vector<int64_t> prompt;
    for (const nlohmann::json& token : one) {
      const bool id = token.is_number_unsigned() &&
                      token.get<uint64_t>() <= std::numeric_limits<uint32_t>::max();
      if (!id) {
        return absl::InvalidArgumentError(absl::StrCat(
            name, ": token ", prompt.size(), ": expected a token id, found ", Found(token)));
      }
      prompt.push_back(token.get<int64_t>());
    }
    prompts.emplace_back(std::move(prompt));
  }
  return prompts;
}

absl::StatusOr<Prompts> ReadPrompts(const std::string& path) {
  ASSIGN_OR_RETURN(const files::MappedFile file, files::MappedFile::Open(path));
  if (file.size() > kMostPromptBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": found ", file.size(), " bytes; allowed: at most ", kMostPromptBytes));
  }
  RETURN_IF_ERROR(filekind::CheckKind(path, file.data(), file.size(), filekind::Wanted::kJson));
  auto prompts = ParsePrompts({reinterpret_cast<const char*>(file.data()), file.size()});
  if (!prompts.ok()) return Annotate(prompts.status(), path);
  return prompts;
}

TokenLists PromptsOf(const v1::GenerateSpec& generate) {
  TokenLists prompts;
  for (const v1::PromptSpec& prompt : generate.prompts()) {
    prompts.emplace_back(prompt.tokens().begin(), prompt.tokens().end());
  }
  return prompts;
}

absl::Status CheckPrompts(const Prompts& prompts, const v1::ModelSpec& model,
                          const v1::GenerateSpec& generate) {
  const auto limits = LimitsOf(model);
  if (!limits.has_value()) return absl::OkStatus();
  if (prompts.empty()) {
    return absl::InvalidArgumentError("found no prompt; allowed: 1 or more");
  }
  Problems problems;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::string name = NameOf(i);
    std::vector<int64_t> tokens;
    if (const auto* text = std::get_if<std::string>(&prompts[i])) {
      if (model.tokenizer() != v1::ModelSpec::BYTES) {
        problems.Add(name + ": is a text; allowed: with model.tokenizer, otherwise token ids");
        continue;
      }
      const auto bytes = tokenizer::TokensOfBytes(*text);
      tokens.assign(bytes.begin(), bytes.end());
    } else {
      tokens = std::get<std::vector<int64_t>>(prompts[i]);
    }
    CheckPrompt(name, tokens, *limits, generate.max_tokens(), &problems);
  }
  if (problems.count() == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(problems.Text());
}

}  // namespace muster::jobspec
