#include "common/tokenizer/hugging_face/decoder.h"

#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/overloaded/overloaded.h"
#include "common/status/status.h"
#include "common/tokenizer/hugging_face/fields.h"
#include "common/tokenizer/hugging_face/split.h"
#include "common/tokenizer/hugging_face/unicode.h"

namespace muster::tokenizer {
namespace {

using nlohmann::json;
using Texts = std::vector<std::string>;

// Returns the bytes that a token of a byte-level vocabulary stands for. A token with another
// character, such as an added token, stands for itself.
std::string BytesOf(const std::string& token) {
  static const auto& bytes = *new auto([] {
    std::unordered_map<std::string, char> made;
    for (int byte = 0; byte < 256; ++byte) {
      made[CharacterOfByte(static_cast<unsigned char>(byte))] = static_cast<char>(byte);
    }
    return made;
  }());
  std::string text;
  for (size_t at = 0; at < token.size();) {
    const size_t length = CharacterAt(token, at).bytes;
    const auto byte = bytes.find(token.substr(at, length));
    if (byte == bytes.end()) return token;
    text += byte->second;
    at += length;
  }
  return text;
}

// Returns the byte of a token such as <0x0A>.
std::optional<char> FallbackByte(const std::string& token) {
  if (token.size() != 6 || token.compare(0, 3, "<0x") != 0 || token[5] != '>') return std::nullopt;
  int value = 0;
  for (const char digit : {token[3], token[4]}) {
    const int number = digit >= '0' && digit <= '9'   ? digit - '0'
                       : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
                       : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
                                                      : -1;
    if (number < 0) return std::nullopt;
    value = value * 16 + number;
  }
  return static_cast<char>(value);
}

// Joins neighbouring bytes. Bytes that are no valid text become one U+FFFD each.
Texts WithoutFallback(const Texts& tokens) {
  Texts result;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    const std::string text = Lossy(bytes);
    if (text == bytes) {
      result.push_back(text);
    } else {
      result.insert(result.end(), bytes.size(), "\xEF\xBF\xBD");
    }
    bytes.clear();
  };
  for (const std::string& token : tokens) {
    if (const auto byte = FallbackByte(token)) {
      bytes += *byte;
      continue;
    }
    flush();
    result.push_back(token);
  }
  flush();
  return result;
}

std::string Stripped(const std::string& token, const Strip& strip) {
  const size_t width = strip.content.size();
  size_t begin = 0, end = token.size();
  for (size_t i = 0; i < strip.start && token.compare(begin, width, strip.content) == 0; ++i) {
    begin += width;
  }
  for (size_t i = 0; i < strip.stop && end >= begin + width &&
                     token.compare(end - width, width, strip.content) == 0;
       ++i) {
    end -= width;
  }
  return token.substr(begin, end - begin);
}

Texts Apply(const DecoderStep& step, Texts tokens) {
  const auto each = [&](const auto& change) {
    for (std::string& token : tokens) token = change(token);
    return std::move(tokens);
  };
  return std::visit(
      Overloaded{
          [&](const ByteLevelDecoder&) {
            std::string bytes;
            for (const std::string& token : tokens) bytes += BytesOf(token);
            return Texts{Lossy(bytes)};
          },
          [&](const MetaspaceDecoder& metaspace) {
            for (size_t i = 0; i < tokens.size(); ++i) {
              if (i == 0 && metaspace.drops_first) {
                tokens[i] = absl::StrReplaceAll(tokens[i], {{metaspace.replacement, ""}});
              } else {
                tokens[i] = absl::StrReplaceAll(tokens[i], {{metaspace.replacement, " "}});
              }
            }
            return std::move(tokens);
          },
          [&](const ByteFallback&) { return WithoutFallback(tokens); },
          [&](const Fuse&) { return Texts{absl::StrJoin(tokens, "")}; },
          [&](const Strip& strip) {
            return each([&](const std::string& one) { return Stripped(one, strip); });
          },
          [&](const Replace& replace) {
            return each([&](const std::string& one) { return Replaced(one, replace); });
          },
      },
      step);
}

absl::StatusOr<Strip> ReadStrip(const json& step) {
  RETURN_IF_ERROR(OnlyKeys(step, {"type", "content", "start", "stop"}));
  Strip strip;
  ASSIGN_OR_RETURN(strip.content, TextOf(step, "content"));
  const json start = step.value("start", json(0u)), stop = step.value("stop", json(0u));
  if (strip.content.empty() || !start.is_number_unsigned() || !stop.is_number_unsigned()) {
    return Unknown("content, start or stop", step);
  }
  strip.start = start.get<size_t>();
  strip.stop = stop.get<size_t>();
  return strip;
}

absl::Status ReadInto(const json& step, std::vector<DecoderStep>* steps) {
  if (step.is_null()) return absl::OkStatus();
  const std::string type = TypeOf(step);
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const json* const list, ListOf(step, "decoders"));
    for (const json& one : *list) RETURN_IF_ERROR(ReadInto(one, steps));
  } else if (type == "ByteLevel") {
    steps->push_back(ByteLevelDecoder{});
  } else if (type == "Metaspace") {
    const json replacement = step.value("replacement", json("\xE2\x96\x81"));
    if (!replacement.is_string() || replacement == "") return Unknown("replacement", replacement);
    const bool never = step.value("prepend_scheme", json("always")) == "never";
    steps->push_back(MetaspaceDecoder{replacement.get<std::string>(), !never});
  } else if (type == "ByteFallback") {
    steps->push_back(ByteFallback{});
  } else if (type == "Fuse") {
    steps->push_back(Fuse{});
  } else if (type == "Strip") {
    ASSIGN_OR_RETURN(steps->emplace_back(), ReadStrip(step));
  } else if (type == "Replace") {
    ASSIGN_OR_RETURN(steps->emplace_back(), ReadReplace(step));
  } else {
    return UnknownType(step,
                       "ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Sequence or Strip");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<DecoderStep>> ReadDecoder(const json& decoder) {
  std::vector<DecoderStep> steps;
  RETURN_IF_ERROR(Annotate(ReadInto(decoder, &steps), "decoder"));
  return steps;
}

std::string Decode(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens) {
  if (steps.empty()) return absl::StrJoin(tokens, " ");
  for (const DecoderStep& step : steps) tokens = Apply(step, std::move(tokens));
  return absl::StrJoin(tokens, "");
}

}  // namespace muster::tokenizer
