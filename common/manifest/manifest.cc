#include "common/manifest/manifest.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/files/hashing_writer.h"
#include "common/manifest/name.h"
#include "common/status/status.h"
#include "nlohmann/json.hpp"

namespace muster::manifest {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "muster-checkpoint";
// Written before the manifest had a hash of itself.
constexpr int64_t kVersionWithoutHash = 1;

// The member that holds the manifest's own hash. It is the third one, so that no name that a user
// chose stands before it.
constexpr char kHashMember[] = "manifest_xxh3_128";
constexpr char kNoHash[] = "00000000000000000000000000000000";

std::string HashLine(const std::string& hash) {
  return absl::StrCat("\"", kHashMember, "\": \"", hash, "\"");
}

// The hash of the text as it is with zeros in the place of the hash.
std::string WithHash(std::string text) {
  const std::string blank = HashLine(kNoHash);
  return text.replace(text.find(blank), blank.size(),
                      HashLine(files::HashBytes(text.data(), text.size())));
}

// `hash`: what the manifest says.
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
  if (steering.validation_due) json["validation_due"] = true;
  return json;
}

Steering SteeringFromJson(const Json& json) {
  Steering steering;
  json.at("waiting_commands").get_to(steering.waiting_commands);
  if (json.contains("learning_rate")) steering.learning_rate = json["learning_rate"].get<double>();
  const Json& trainability = json.at("trainability");
  trainability.at("version").get_to(steering.trainability_version);
  trainability.at("pending").get_to(steering.pending);
  for (const Json& item : trainability.at("rules")) {
    const bool freeze = item.contains("freeze");
    steering.rules.push_back(
        {.freeze = freeze, .pattern = item.at(freeze ? "freeze" : "unfreeze").get<std::string>()});
  }
  if (json.contains("applied")) json["applied"].get_to(steering.applied);
  if (json.contains("validation_due")) json["validation_due"].get_to(steering.validation_due);
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
  return {{"kind", optimizer.kind}, {"groups", std::move(groups)}};
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
    item.at("shape").get_to(parameter.shape);
    item.at("dtype").get_to(parameter.dtype);
    item.at("trainable").get_to(parameter.trainable);
    item.at("ever_trained").get_to(parameter.ever_trained);
    item.at("group").get_to(parameter.group);
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
  return {{"format", kFormat},
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
          {"block_bytes", files::kHashedBlock},
          {"files", std::move(files)},
          {"pieces", std::move(pieces)}};
}

// Throws nlohmann's exceptions on missing keys and wrong types; Read turns them into a status.
Manifest FromJson(const Json& json, int64_t version) {
  Manifest manifest;
  manifest.version = version;
  const bool blocks = manifest.has_blocks();
  json.at("job").get_to(manifest.job);
  if (json.contains("job_instance")) json["job_instance"].get_to(manifest.job_instance);
  json.at("step").get_to(manifest.step);
  json.at("generation").get_to(manifest.generation);
  json.at("last_command").get_to(manifest.last_command);
  if (json.contains("steering")) manifest.steering = SteeringFromJson(json["steering"]);
  json.at("epoch").get_to(manifest.epoch);
  json.at("cursor").get_to(manifest.cursor);
  json.at("world_size").get_to(manifest.world_size);
  json.at("strategy").get_to(manifest.strategy);
  json.at("model_kind").get_to(manifest.model_kind);
  if (blocks) {
    manifest.optimizer = OptimizerFromJson(json.at("optimizer"));
    manifest.parameters = ParametersFromJson(json.at("parameters"));
  }
  for (const Json& item : json.at("files")) {
    FileRecord file;
    item.at("name").get_to(file.name);
    item.at("size").get_to(file.size);
    item.at("xxh3_128").get_to(file.hash);
    if (blocks) item.at("blocks_xxh3_128").get_to(file.blocks);
    manifest.files.push_back(std::move(file));
  }
  for (const Json& item : json.at("pieces")) {
    Piece piece;
    item.at("slot").get_to(piece.slot);
    item.at("parameter").get_to(piece.parameter);
    item.at("shape").get_to(piece.shape);
    item.at("begin").get_to(piece.begin);
    item.at("end").get_to(piece.end);
    item.at("file").get_to(piece.file);
    if (item.contains("dtype")) item["dtype"].get_to(piece.dtype);
    if (blocks) item.at("offset").get_to(piece.offset);
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
  const std::string path = files::JoinPath(directory, kFileName);
  ASSIGN_OR_RETURN(const std::string text, files::ReadFile(path));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return absl::DataLossError(absl::StrCat(path, ": expected a JSON object, found ", text.size(),
                                            " bytes that are not one"));
  }
  try {
    const std::string format = json.at("format").get<std::string>();
    const int64_t version = json.at("version").get<int64_t>();
    if (format == kFormat && version > kVersion) {
      // Written by a newer program, which has its hash in the same place: as far as this program
      // can check, it is not damaged.
      RETURN_IF_ERROR(CheckHash(path, text, json.at(kHashMember).get<std::string>()));
      return absl::UnimplementedError(absl::StrCat(path, ": has version ", version, " of ", kFormat,
                                                   ", this program reads up to ", kVersion));
    }
    if (format != kFormat || version < kVersionWithoutHash || version > kVersion) {
      return absl::DataLossError(absl::StrCat(path, ": expected ", kFormat, " version ",
                                              kVersionWithoutHash, " to ", kVersion, ", found ",
                                              format, " version ", version));
    }
    if (version != kVersionWithoutHash) {
      RETURN_IF_ERROR(CheckHash(path, text, json.at(kHashMember).get<std::string>()));
    }
    Manifest manifest = FromJson(json, version);
    if (manifest.has_blocks() && json.at("block_bytes").get<uint64_t>() != files::kHashedBlock) {
      return absl::DataLossError(absl::StrCat(path, ": expected block_bytes ", files::kHashedBlock,
                                              ", found ", json.at("block_bytes").dump()));
    }
    RETURN_IF_ERROR(CheckName(directory, manifest));
    return manifest;
  } catch (const Json::exception& error) {
    return absl::DataLossError(absl::StrCat(path, ": ", error.what()));
  }
}

}  // namespace muster::manifest
