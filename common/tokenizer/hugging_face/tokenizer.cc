#include "common/tokenizer/hugging_face/tokenizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/mapped_file.h"
#include "common/safetensors/strict_json.h"
#include "common/status/status.h"
#include "common/tokenizer/hugging_face/fields.h"
#include "common/utf8/utf8.h"

namespace muster::tokenizer {
namespace {

using nlohmann::json;

// Far more than any tokenizer has; a bound for hostile files.
constexpr uint64_t kLargest = uint64_t{1} << 28;

// Returns the ids of a special token in a TemplateProcessing.
absl::StatusOr<std::vector<uint32_t>> IdsOf(const json& processor, const json& item) {
  const json name = item.at("SpecialToken").value("id", json());
  const json tokens = processor.value("special_tokens", json());
  if (!name.is_string() || !tokens.is_object() || !tokens.contains(name) ||
      !tokens[name.get<std::string>()].is_object()) {
    return Unknown("special_tokens", name);
  }
  const json ids = tokens[name.get<std::string>()].value("ids", json());
  std::vector<uint32_t> result;
  if (!ids.is_array()) return Unknown("special_tokens", name);
  for (const json& id : ids) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) return Unknown("ids", id);
    result.push_back(id.get<uint32_t>());
  }
  return result;
}

// The tokens before and after a text.
struct Frame {
  std::vector<uint32_t> before;
  std::vector<uint32_t> after;
};

absl::Status ReadTemplate(const json& processor, Frame* frame) {
  RETURN_IF_ERROR(OnlyKeys(processor, {"type", "single", "pair", "special_tokens"}));
  ASSIGN_OR_RETURN(const json* const single, ListOf(processor, "single"));
  bool text_seen = false;
  for (const json& item : *single) {
    const json sequence = item.is_object() ? item.value("Sequence", json()) : json();
    if (sequence.is_object() && sequence.value("id", json()) == "A" && !text_seen) {
      text_seen = true;
    } else if (item.is_object() && item.contains("SpecialToken") &&
               item.at("SpecialToken").is_object()) {
      ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, IdsOf(processor, item));
      std::vector<uint32_t>& to = text_seen ? frame->after : frame->before;
      to.insert(to.end(), ids.begin(), ids.end());
    } else {
      return Unknown("single", item);
    }
  }
  if (!text_seen) return Unknown("single", *single);
  return absl::OkStatus();
}

absl::Status ReadFrame(const json& processor, Frame* frame) {
  if (processor.is_null()) return absl::OkStatus();
  const std::string type = TypeOf(processor);
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const json* const list, ListOf(processor, "processors"));
    for (const json& one : *list) RETURN_IF_ERROR(ReadFrame(one, frame));
    return absl::OkStatus();
  }
  // Changes only the places of tokens in the text.
  if (type == "ByteLevel") return absl::OkStatus();
  if (type != "TemplateProcessing") {
    return UnknownType(processor, "ByteLevel, Sequence or TemplateProcessing");
  }
  Frame inner;
  RETURN_IF_ERROR(ReadTemplate(processor, &inner));
  frame->before.insert(frame->before.begin(), inner.before.begin(), inner.before.end());
  frame->after.insert(frame->after.end(), inner.after.begin(), inner.after.end());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Tokenizer> Tokenizer::Open(const std::string& path) {
  ASSIGN_OR_RETURN(const files::MappedFile file, files::MappedFile::Open(path));
  if (file.size() > kLargest) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected at most ", kLargest, " bytes, found ", file.size()));
  }
  const auto parsed = safetensors::ParseStrictJson(file.data(), file.size());
  if (!parsed.ok()) return Annotate(parsed.status(), path);
  auto tokenizer = Read(*parsed);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), path);
  return tokenizer;
}

absl::StatusOr<Tokenizer> Tokenizer::Read(const json& json) {
  // Truncation and padding are settings of a program that was run before; transformers ignores
  // them, too.
  RETURN_IF_ERROR(OnlyKeys(json, {"version", "truncation", "padding", "added_tokens", "normalizer",
                                  "pre_tokenizer", "post_processor", "decoder", "model"}));
  const auto at = [&](const char* key) { return json.value(key, nlohmann::json()); };
  Tokenizer tokenizer;
  ASSIGN_OR_RETURN(tokenizer.normal_steps_, ReadNormalSteps(at("normalizer")));
  ASSIGN_OR_RETURN(tokenizer.split_steps_, ReadSplitSteps(at("pre_tokenizer")));
  ASSIGN_OR_RETURN(tokenizer.decoder_steps_, ReadDecoder(at("decoder")));
  ASSIGN_OR_RETURN(tokenizer.model_, Bpe::Read(at("model")));
  ASSIGN_OR_RETURN(const std::vector<AddedToken> added,
                   ReadAddedTokens(at("added_tokens"), tokenizer.model_.vocabulary()));
  for (const auto& [text, id] : tokenizer.model_.vocabulary()) tokenizer.texts_[id] = text;
  std::vector<AddedToken> raw, normalized;
  for (AddedToken one : added) {
    if (one.special) tokenizer.special_.insert(one.id);
    // `tokenizers` also decodes the token to its normalized text.
    if (one.normalized) one.content = Apply(tokenizer.normal_steps_, one.content);
    tokenizer.texts_[one.id] = one.content;
    if (one.content.empty()) continue;  // the normalizer leaves nothing to find
    (one.normalized ? normalized : raw).push_back(std::move(one));
  }
  tokenizer.raw_ = TokenFinder(std::move(raw));
  tokenizer.normalized_ = TokenFinder(std::move(normalized));
  RETURN_IF_ERROR(tokenizer.ReadAround(at("post_processor")));
  return tokenizer;
}

absl::Status Tokenizer::ReadAround(const json& post_processor) {
  Frame frame;
  RETURN_IF_ERROR(Annotate(ReadFrame(post_processor, &frame), "post_processor"));
  before_ = std::move(frame.before);
  after_ = std::move(frame.after);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint32_t>> Tokenizer::Encode(const std::string& text,
                                                        Around around) const {
  if (const size_t valid = ValidUtf8Prefix(text); valid < text.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a text in UTF-8, found another byte at place ", valid));
  }
  std::vector<uint32_t> tokens;
  if (around == Around::kAdded) tokens = before_;
  bool first = true;  // nothing of the text comes before
  for (const Piece& raw : raw_.Find(text)) {
    if (raw.token.has_value()) {
      tokens.push_back(*raw.token);
      first = false;
      continue;
    }
    for (const Piece& piece : normalized_.Find(Apply(normal_steps_, raw.text))) {
      if (piece.token.has_value()) {
        tokens.push_back(*piece.token);
        first = false;
        continue;
      }
      std::vector<Part> parts = {{piece.text, std::exchange(first, false)}};
      RETURN_IF_ERROR(tokenizer::Apply(split_steps_, &parts));
      for (const Part& part : parts) model_.Encode(part.text, &tokens);
    }
  }
  if (around == Around::kAdded) tokens.insert(tokens.end(), after_.begin(), after_.end());
  return tokens;
}

std::string Tokenizer::Decode(const std::vector<int64_t>& tokens) const {
  std::vector<std::string> texts;
  for (const int64_t token : tokens) {
    if (token < 0 || token > INT32_MAX) continue;
    const auto id = static_cast<uint32_t>(token);
    const auto text = texts_.find(id);
    if (text != texts_.end() && !special_.contains(id)) texts.push_back(text->second);
  }
  return tokenizer::Decode(decoder_steps_, std::move(texts));
}

}  // namespace muster::tokenizer
