#include "common/tokenizer/sidecar.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/filekind/file_kind.h"
#include "common/files/files.h"
#include "common/status/status.h"

namespace muster::tokenizer {
namespace {

constexpr char kSuffix[] = ".tokenizer.json";
constexpr char kFormat[] = "muster-tokens";

}  // namespace

std::string SidecarPath(const std::string& path) { return path + kSuffix; }

absl::StatusOr<std::optional<Sidecar>> ReadSidecar(const std::string& path) {
  const std::string name = SidecarPath(path);
  const auto text = files::ReadFile(name);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  RETURN_IF_ERROR(text.status());
  RETURN_IF_ERROR(filekind::CheckKind(name, reinterpret_cast<const uint8_t*>(text->data()),
                                      text->size(), filekind::Wanted::kJson));
  try {
    const auto json = nlohmann::json::parse(*text);
    if (json.at("format") != kFormat) throw std::invalid_argument("its format is another one");
    const auto& tokenizer = json.at("tokenizer");
    Sidecar sidecar{.tokenizer = {.path = tokenizer.at("path").get<std::string>(),
                                  .hash = tokenizer.at("xxh3_128").get<std::string>()},
                    .tokens = json.at("tokens").get<int64_t>(),
                    .dtype = json.at("dtype").get<std::string>(),
                    .vocab_size = json.at("vocab_size").get<int64_t>()};
    if (!sidecar.tokenizer.known()) throw std::invalid_argument("it names no tokenizer");
    return sidecar;
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " does not describe a file of tokens (", error.what(),
                     "); make the tokens again, or remove it if they are right"));
  }
}

absl::Status CheckSidecar(const Sidecar& sidecar, const std::string& path, const std::string& dtype,
                          int64_t tokens, int64_t vocab_size) {
  const auto wrong = [&path](const auto& what, const auto& expected, const auto& found) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", what, ": expected ", expected,
                                                   " (from ", path, kSuffix, "), found ", found));
  };
  if (dtype != sidecar.dtype) return wrong("dtype", sidecar.dtype, dtype);
  if (tokens != sidecar.tokens) return wrong("number of tokens", sidecar.tokens, tokens);
  if (vocab_size < sidecar.vocab_size) {
    return wrong("vocabulary of the model", absl::StrCat("at least ", sidecar.vocab_size),
                 vocab_size);
  }
  return absl::OkStatus();
}

absl::Status CheckSameTokenizer(const Source& a, const std::string& one, const Source& b,
                                const std::string& other) {
  if (!a.known() || !b.known() || a.hash == b.hash) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the tokens were made with two different tokenizers: ", one, " with ", a.path,
                   " (XXH3 ", a.hash, "), ", other, " with ", b.path, " (XXH3 ", b.hash, ")"));
}

}  // namespace muster::tokenizer
