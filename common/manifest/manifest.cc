#include "common/manifest/manifest.h"

#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/filekind/file_kind.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/files/hashing_writer.h"
#include "common/manifest/name.h"
#include "common/manifest/whole.h"
#include "common/status/status.h"
#include "common/utf8/utf8.h"
#include "nlohmann/json.hpp"

namespace muster::manifest {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "muster-checkpoint";
// The third member, which holds the manifest's own hash. It comes before every name that a user
// chose.
constexpr char kHashMember[] = "manifest_xxh3_128";
constexpr char kNoHash[] = "00000000000000000000000000000000";

std::string HashLine(const std::string& hash) {
  return absl::StrCat("\"", kHashMember, "\": \"", hash, "\"");
}

// Returns the text with its hash. The hash is that of the text with zeros in its place.
std::string WithHash(std::string text) {
  const std::string blank = HashLine(kNoHash);
  return text.replace(text.find(blank), blank.size(),
                      HashLine(files::HashBytes(text.data(), text.size())));
}

// `hash`: the hash in the manifest.
absl::Status CheckHash(const std::string& path, std::string text, const std::string& hash) {
  const std::string line = HashLine(hash);
  const size_t at = text.find(line);
  if (hash.size() != sizeof(kNoHash) - 1 || at == std::string::npos) {
    return absl::DataLossError(absl::StrCat(path, ": expected the member ", HashLine("<32 digits>"),
                                            ", found '", hash, "'"));
  }
  text.replace(at, line.size(), HashLine(kNoHash));
  const std::string found = files::HashBytes(text.data(), text.size());
  if (found == hash) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, ": was changed or is damaged: expected the hash ",
                                          hash, " (", kHashMember, "), found ", found));
}

absl::Status CheckName(const std::string& directory, const Manifest& manifest) {
  const std::string name = NameOfDirectory(directory);
  const auto parsed = ParseFinalName(name);
  if (!parsed.has_value() || *parsed == CheckpointName{manifest.step, manifest.generation}) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(files::JoinPath(directory, kFileName), ": expected step ",
                                          parsed->step, " and generation ", parsed->generation,
                                          ", as the directory is called, found step ",
                                          manifest.step, " and generation ", manifest.generation));
}

Json ToJson(const Steering& steering) {
  Json json = {{"waiting_commands", steering.waiting_commands}};
  if (steering.learning_rate.has_value()) json["learning_rate"] = *steering.learning_rate;
  Json rules = Json::array();
  for (const TrainableRule& rule : steering.rules) {
    rules.push_back({{rule.freeze ? "freeze" : "unfreeze", rule.pattern}});
  }
  json["trainability"] = {{"version", steering.trainability_version},
                          {"rules", std::move(rules)},
                          {"pending", steering.pending}};
  json["applied"] = steering.applied;
  for (const FailedCommand& failed : steering.failed) {
    json["failed"].push_back({{"command", failed.number},
                              {"code", static_cast<int>(failed.status.code())},
                              {"message", ValidUtf8(std::string(failed.status.message()))},
                              {"reason", failed.reason}});
  }
  if (steering.validation_due) json["validation_due"] = true;
  if (steering.validations != ValidationRecord()) {
    json["validations"] = ToJson(steering.validations);
  }
  return json;
}

Steering SteeringFromJson(const Json& json) {
  Steering steering;
  WholeTo(json.at("waiting_commands"), &steering.waiting_commands);
  if (json.contains("learning_rate")) steering.learning_rate = json["learning_rate"].get<double>();
  const Json& trainability = json.at("trainability");
  WholeTo(trainability.at("version"), &steering.trainability_version);
  trainability.at("pending").get_to(steering.pending);
  for (const Json& item : trainability.at("rules")) {
    const bool freeze = item.contains("freeze");
    steering.rules.push_back(
        {.freeze = freeze, .pattern = item.at(freeze ? "freeze" : "unfreeze").get<std::string>()});
  }
  if (json.contains("applied")) WholeTo(json["applied"], &steering.applied);
  for (const Json& failed : json.value("failed", Json::array())) {
    const auto code = static_cast<absl::StatusCode>(Whole<int32_t>(failed.at("code")));
    steering.failed.push_back({.number = Whole<int64_t>(failed.at("command")),
                               .status = {code, failed.at("message").get<std::string>()},
                               .reason = failed.at("reason").get<std::string>()});
  }
  if (json.contains("validation_due")) json["validation_due"].get_to(steering.validation_due);
  if (json.contains("validations")) {
    steering.validations = ValidationRecordFromJson(json["validations"]);
  }
  return steering;
}

Json ToJson(const OptimizerRecord& optimizer) {
  Json groups = Json::array();
  for (const OptimizerSettings& settings : optimizer.groups) {
    Json group = Json::object();
    for (const auto& [name, values] : settings) {
      group[name] = values.size() == 1 ? Json(values[0]) : Json(values);
    }
    groups.push_back(std::move(group));
  }
  Json json = {{"kind", optimizer.kind}, {"groups", std::move(groups)}};
  if (!optimizer.kinds.empty()) json["kinds"] = optimizer.kinds;
  return json;
}

OptimizerRecord OptimizerFromJson(const Json& json) {
  OptimizerRecord optimizer;
  json.at("kind").get_to(optimizer.kind);
  for (const Json& group : json.at("groups")) {
    OptimizerSettings& settings = optimizer.groups.emplace_back();
    for (const auto& [name, value] : group.items()) {
      settings.emplace_back(name, value.is_array() ? value.get<std::vector<double>>()
                                                   : std::vector<double>{value.get<double>()});
    }
  }
  if (json.contains("kinds")) json["kinds"].get_to(optimizer.kinds);
  return optimizer;
}

Json ToJson(const std::vector<ParameterRecord>& parameters) {
  Json json = Json::array();
  for (const ParameterRecord& parameter : parameters) {
    json.push_back({{"name", parameter.name},
                    {"shape", parameter.shape},
                    {"dtype", parameter.dtype},
                    {"trainable", parameter.trainable},
                    {"ever_trained", parameter.ever_trained},
                    {"group", parameter.group}});
  }
  return json;
}

std::vector<ParameterRecord> ParametersFromJson(const Json& json) {
  std::vector<ParameterRecord> parameters;
  for (const Json& item : json) {
    ParameterRecord& parameter = parameters.emplace_back();
    item.at("name").get_to(parameter.name);
    WholeTo(item.at("shape"), &parameter.shape);
    item.at("dtype").get_to(parameter.dtype);
    item.at("trainable").get_to(parameter.trainable);
    item.at("ever_trained").get_to(parameter.ever_trained);
    WholeTo(item.at("group"), &parameter.group);
  }
  return parameters;
}

Json ToJson(const Manifest& manifest) {
  Json files = Json::array();
  for (const FileRecord& file : manifest.files) {
    files.push_back({{"name", file.name},
                     {"size", file.size},
                     {"xxh3_128", file.hash},
                     {"blocks_xxh3_128", file.blocks}});
  }
  Json pieces = Json::array();
  for (const Piece& piece : manifest.pieces) {
    pieces.push_back({{"slot", piece.slot},
                      {"parameter", piece.parameter},
                      {"shape", piece.shape},
                      {"begin", piece.begin},
                      {"end", piece.end},
                      {"file", piece.file},
                      {"dtype", piece.dtype},
                      {"offset", piece.offset}});
  }
  Json json = {{"format", kFormat},
               {"version", kVersion},
               {kHashMember, kNoHash},
               {"job", manifest.job},
               {"job_instance", manifest.job_instance},
               {"step", manifest.step},
               {"generation", manifest.generation},
               {"last_command", manifest.last_command},
               {"steering", ToJson(manifest.steering)},
               {"epoch", manifest.epoch},
               {"cursor", manifest.cursor},
               {"world_size", manifest.world_size},
               {"strategy", manifest.strategy},
               {"model_kind", manifest.model_kind},
               {"optimizer", ToJson(manifest.optimizer)},
               {"parameters", ToJson(manifest.parameters)},
               {"block_bytes", files::kHashedBlock}};
  for (const SamplingRecord& record : manifest.sampling) {
    json["sampling"].push_back(ToJson(record));
  }
  if (!manifest.config.empty()) json["config"] = Json::parse(manifest.config);
  if (!manifest.first_weights.empty()) json["first_weights"] = manifest.first_weights;
  if (!manifest.settings.empty()) json["settings"] = Json::parse(manifest.settings);
  if (manifest.tokenizer.known()) {
    json["tokenizer"] = {{"path", manifest.tokenizer.path}, {"xxh3_128", manifest.tokenizer.hash}};
  }
  if (!manifest.model_hash.empty()) json["model_xxh3_128"] = manifest.model_hash;
  json["files"] = std::move(files);
  json["pieces"] = std::move(pieces);
  return json;
}

// Throws unless the kind of optimizer of each group can be found.
void CheckKinds(const Manifest& manifest) {
  const OptimizerRecord& optimizer = manifest.optimizer;
  if (optimizer.kinds.empty()) return;
  if (optimizer.kinds.size() != optimizer.groups.size()) {
    throw std::runtime_error(absl::StrCat("optimizer: expected a kind for each of ",
                                          optimizer.groups.size(), " groups, found ",
                                          optimizer.kinds.size(), " kinds"));
  }
  for (const ParameterRecord& parameter : manifest.parameters) {
    if (parameter.group >= 0 && parameter.group < std::ssize(optimizer.groups)) continue;
    throw std::runtime_error(absl::StrCat("parameter '", parameter.name, "': there is no group ",
                                          parameter.group, " of the optimizer"));
  }
}

// Throws on missing keys and wrong types, which Parse turns into a status.
Manifest FromJson(const Json& json) {
  Manifest manifest;
  json.at("job").get_to(manifest.job);
  json.at("job_instance").get_to(manifest.job_instance);
  WholeTo(json.at("step"), &manifest.step);
  WholeTo(json.at("generation"), &manifest.generation);
  WholeTo(json.at("last_command"), &manifest.last_command);
  if (json.contains("steering")) manifest.steering = SteeringFromJson(json["steering"]);
  WholeTo(json.at("epoch"), &manifest.epoch);
  WholeTo(json.at("cursor"), &manifest.cursor);
  WholeTo(json.at("world_size"), &manifest.world_size);
  json.at("strategy").get_to(manifest.strategy);
  json.at("model_kind").get_to(manifest.model_kind);
  manifest.optimizer = OptimizerFromJson(json.at("optimizer"));
  manifest.parameters = ParametersFromJson(json.at("parameters"));
  CheckKinds(manifest);
  if (json.contains("sampling")) {
    for (const Json& item : json["sampling"]) {
      manifest.sampling.push_back(SamplingRecordFromJson(item));
    }
  }
  if (json.contains("config")) manifest.config = json["config"].dump(2) + "\n";
  if (json.contains("first_weights")) json["first_weights"].get_to(manifest.first_weights);
  if (json.contains("settings")) manifest.settings = json["settings"].dump();
  if (json.contains("tokenizer")) {
    json["tokenizer"].at("path").get_to(manifest.tokenizer.path);
    json["tokenizer"].at("xxh3_128").get_to(manifest.tokenizer.hash);
  }
  if (json.contains("model_xxh3_128")) json["model_xxh3_128"].get_to(manifest.model_hash);
  for (const Json& item : json.at("files")) {
    FileRecord file;
    item.at("name").get_to(file.name);
    WholeTo(item.at("size"), &file.size);
    item.at("xxh3_128").get_to(file.hash);
    item.at("blocks_xxh3_128").get_to(file.blocks);
    manifest.files.push_back(std::move(file));
  }
  for (const Json& item : json.at("pieces")) {
    Piece piece;
    item.at("slot").get_to(piece.slot);
    item.at("parameter").get_to(piece.parameter);
    WholeTo(item.at("shape"), &piece.shape);
    WholeTo(item.at("begin"), &piece.begin);
    WholeTo(item.at("end"), &piece.end);
    item.at("file").get_to(piece.file);
    item.at("dtype").get_to(piece.dtype);
    WholeTo(item.at("offset"), &piece.offset);
    manifest.pieces.push_back(std::move(piece));
  }
  return manifest;
}

}  // namespace

std::string EntryName(const Piece& piece) { return piece.slot + "/" + piece.parameter; }

absl::Status Write(const Manifest& manifest, const std::string& directory, files::Disk& disk) {
  const std::string path = files::JoinPath(directory, kFileName);
  std::string text;
  try {
    text = WithHash(ToJson(manifest).dump(1) + "\n");
  } catch (const Json::exception&) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": a name is not UTF-8"));
  }
  ASSIGN_OR_RETURN(const auto writer, files::HashingWriter::Create(path, disk));
  RETURN_IF_ERROR(writer->Append(text.data(), text.size()));
  return writer->Finish().status();
}

absl::StatusOr<Manifest> Read(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::string text, files::ReadFile(files::JoinPath(directory, kFileName)));
  return Parse(text, directory);
}

absl::StatusOr<Manifest> Parse(const std::string& text, const std::string& directory) {
  const std::string path = files::JoinPath(directory, kFileName);
  if (const auto other = filekind::Mismatch(text, filekind::Wanted::kJson)) {
    return absl::DataLossError(absl::StrCat(path, ": ", *other));
  }
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return absl::DataLossError(absl::StrCat(path, ": expected a JSON object, found ", text.size(),
                                            " bytes that are not one"));
  }
  try {
    const std::string format = json.at("format").get<std::string>();
    const int64_t version = Whole<int64_t>(json.at("version"));
    if (format != kFormat || version < 1) {
      return absl::DataLossError(absl::StrCat(path, ": expected ", kFormat, " version ", kVersion,
                                              ", found ", format, " version ", version));
    }
    // A manifest of another version has its hash in the same place. Version 1 has no hash.
    if (version > 1 || json.contains(kHashMember)) {
      RETURN_IF_ERROR(CheckHash(path, text, json.at(kHashMember).get<std::string>()));
    }
    if (version != kVersion) {
      // The manifest is undamaged as far as this program can check.
      const char* const next = version < kVersion ? "a program of version 0.3.0 reads it, and "
                                                    "writes its next checkpoint in version 3"
                                                  : "use the newer program that wrote it";
      return absl::UnimplementedError(absl::StrCat(path, ": has version ", version, " of ", kFormat,
                                                   ", this program reads version ", kVersion, "; ",
                                                   next));
    }
    Manifest manifest = FromJson(json);
    if (Whole<uint64_t>(json.at("block_bytes")) != files::kHashedBlock) {
      return absl::DataLossError(absl::StrCat(path, ": expected block_bytes ", files::kHashedBlock,
                                              ", found ", json.at("block_bytes").dump()));
    }
    RETURN_IF_ERROR(CheckName(directory, manifest));
    return manifest;
  } catch (const std::exception& error) {
    return absl::DataLossError(absl::StrCat(path, ": ", error.what()));
  }
}

}  // namespace muster::manifest
