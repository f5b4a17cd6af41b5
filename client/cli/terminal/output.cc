#include "client/cli/terminal/output.h"

#include <google/protobuf/util/json_util.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/printable/printable.h"

namespace muster::cli {

std::string Json(const google::protobuf::Message& message, JsonForm form) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  options.add_whitespace = form == JsonForm::kPretty;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  // The conversion fails only for a broken Any or Timestamp. The result is then an empty object.
  if (!status.ok()) text = "{}";
  if (text.empty() || text.back() != '\n') text += '\n';
  return text;
}

std::string Document(const google::protobuf::Message& message, Output output) {
  return Document(Json(message, JsonForm::kPretty), output);
}

std::string Document(const std::string& json, Output output) {
  return output == Output::kYaml ? YamlOfJson(json) : json;
}

std::string StreamItem(const google::protobuf::Message& message, Output output) {
  const std::string json = Json(message, JsonForm::kLine);
  return output == Output::kYaml ? absl::StrCat("---\n", YamlOfJson(json)) : json;
}

namespace {

using Json = nlohmann::ordered_json;

// Returns whether every reader takes the unquoted text as a text. Such a text begins like a word,
// and has no other meaning in YAML 1.1.
bool IsPlain(const std::string& text) {
  static constexpr const char* kWords[] = {"y",    "n",     "yes",  "no",  "on", "off",
                                           "true", "false", "null", "nan", "inf"};
  if (text.empty() || !(absl::ascii_isalpha(text[0]) || text[0] == '_' || text[0] == '/'))
    return false;
  const bool word = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '/' || c == '.';
  });
  const std::string lower = absl::AsciiStrToLower(text);
  return word && std::find(std::begin(kWords), std::end(kWords), lower) == std::end(kWords);
}

void EmitText(const std::string& text, YAML::Emitter* out) {
  if (!IsPlain(text)) *out << YAML::DoubleQuoted;
  *out << text;
}

// YAML 1.1 takes "1e-08" as a text: its numbers with an exponent have a point.
std::string FloatText(std::string text) {
  const size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos)
    text.insert(exponent, ".0");
  return text;
}

void Emit(const Json& json, YAML::Emitter* out) {
  switch (json.type()) {
    case Json::value_t::object:
      if (json.empty()) *out << YAML::Flow;
      *out << YAML::BeginMap;
      for (const auto& [key, value] : json.items()) {
        *out << YAML::Key;
        EmitText(key, out);
        *out << YAML::Value;
        Emit(value, out);
      }
      *out << YAML::EndMap;
      return;
    case Json::value_t::array:
      if (json.empty()) *out << YAML::Flow;
      *out << YAML::BeginSeq;
      for (const Json& element : json) Emit(element, out);
      *out << YAML::EndSeq;
      return;
    case Json::value_t::string:
      EmitText(json.get<std::string>(), out);
      return;
    case Json::value_t::null:
      *out << YAML::Null;
      return;
    case Json::value_t::number_float:
      *out << FloatText(json.dump());
      return;
    default:
      // Whole numbers and truth values are written as in JSON.
      *out << json.dump();
      return;
  }
}

// The number of characters, and not of bytes: continuation bytes of UTF-8 do not count.
size_t Width(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

}  // namespace

std::string YamlOfJson(const std::string& json) {
  YAML::Emitter out;
  Emit(nlohmann::ordered_json::parse(json), &out);
  return std::string(out.c_str(), out.size()) + "\n";
}

Table::Table(std::vector<std::string> header) : has_header_(!header.empty()) {
  if (has_header_) rows_.push_back(std::move(header));
}

void Table::Add(std::vector<std::string> row) {
  for (std::string& cell : row) cell = PrintableLine(cell);
  rows_.push_back(std::move(row));
}

bool Table::empty() const { return rows_.size() == (has_header_ ? 1 : 0); }

std::string Table::Text() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    if (row.size() > widths.size()) widths.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i] + std::string(widths[i] - Width(row[i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace muster::cli
