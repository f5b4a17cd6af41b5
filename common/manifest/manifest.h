// MANIFEST.json: what a checkpoint directory holds (docs/reference/checkpoint-format.md). It does
// not use LibTorch, so the command line can use it, too.
#ifndef MUSTER_COMMON_MANIFEST_MANIFEST_H_
#define MUSTER_COMMON_MANIFEST_MANIFEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/disk.h"
#include "common/manifest/sampling_record.h"
#include "common/manifest/validation_record.h"
#include "common/tokenizer/source.h"
#include "common/trainability/trainability.h"

namespace muster::manifest {

inline constexpr char kFileName[] = "MANIFEST.json";

struct FileRecord {
  std::string name;  // relative to the directory, without any slash
  uint64_t size = 0;
  std::string hash;  // XXH3 128-bit, 32 hexadecimal digits
  // Of each files::kHashedBlock bytes of it, in the same form.
  std::vector<std::string> blocks = {};
  friend bool operator==(const FileRecord&, const FileRecord&) = default;
};

// Elements [begin, end) of the flattened tensor (slot, parameter), stored as the one-dimensional
// entry "slot/parameter" of `file`. A scalar counts as one element and has the shape [].
struct Piece {
  std::string slot;
  std::string parameter;
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t begin = 0;
  int64_t end = 0;
  std::string file;
  std::string dtype = "F32";  // of the whole tensor, by its name in safetensors files
  // The byte of the file where its first element lies.
  int64_t offset = 0;
  friend bool operator==(const Piece&, const Piece&) = default;
};

// A command that took effect without changing anything, and why. `reason`: a code for programs.
struct FailedCommand {
  int64_t number = 0;
  absl::Status status;
  std::string reason;
  friend bool operator==(const FailedCommand&, const FailedCommand&) = default;
};

// The current state of everything that commands have changed.
struct Steering {
  // Commands that the ranks have taken in and that have not taken effect.
  std::vector<int64_t> waiting_commands;
  // Replaces the job's own learning rate.
  std::optional<double> learning_rate;
  // Which parameters are trained. Version 0: as in the job file (a manifest without versions).
  int64_t trainability_version = 0;
  std::vector<TrainableRule> rules;
  // Parameters that model code has frozen or unfrozen, without effect yet.
  std::vector<std::string> pending;
  // The newest commands that took effect: number and step.
  std::vector<std::pair<int64_t, int64_t>> applied;
  // The commands of `applied` that failed.
  std::vector<FailedCommand> failed;
  // A validation pass was due after this step and was not run, because the job had to leave its
  // node. A generation that continues from here runs it first.
  bool validation_due = false;
  ValidationRecord validations;
  friend bool operator==(const Steering&, const Steering&) = default;
};

// Settings of the optimizer for some of the parameters, with their names in the job file ("lr",
// "betas"), each with its numbers; true and false are 1 and 0.
using OptimizerSettings = std::vector<std::pair<std::string, std::vector<double>>>;

struct OptimizerRecord {
  std::string kind;  // "adamw"; empty: the job trains nothing
  std::vector<OptimizerSettings> groups;
  // The kind of each group; empty: all are of `kind`.
  std::vector<std::string> kinds;

  const std::string& KindOf(size_t group) const { return kinds.empty() ? kind : kinds[group]; }
  friend bool operator==(const OptimizerRecord&, const OptimizerRecord&) = default;
};

struct ParameterRecord {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype;
  bool trainable = false;
  // It was trained at some time, so the optimizer has its state (if this kind of optimizer keeps
  // any), also if it is frozen now.
  bool ever_trained = false;
  int64_t group = 0;  // of the optimizer
  friend bool operator==(const ParameterRecord&, const ParameterRecord&) = default;
};

// The version of the format: Write writes it, and Read refuses all others.
inline constexpr int64_t kVersion = 3;

struct Manifest {
  std::string job;
  // Distinguishes the job from another job of the same name.
  std::string job_instance;
  int64_t step = 0;
  int64_t generation = 0;
  int64_t last_command = 0;
  Steering steering;
  int64_t epoch = 0;
  int64_t cursor = 0;
  // From the first step of the training on. Empty if an older program has written it.
  std::vector<SamplingRecord> sampling;
  int64_t world_size = 0;
  std::string strategy;
  std::string model_kind;
  OptimizerRecord optimizer;
  // In the order in which the source model registers them (Hugging Face's, if it has this model):
  // the position is the index in the state of a Python optimizer.
  std::vector<ParameterRecord> parameters;
  // The model's config.json, if transformers has this kind of model; a JSON object, or empty.
  std::string config;
  // The file from which the model's first weights came: an absolute path, or empty.
  std::string first_weights;
  // The settings of the job that decide how it trains (jobspec::TrainingSettingsJson), without
  // what commands changed; a JSON object, or empty.
  std::string settings;
  // What made the tokens on which the model was trained, if it is known.
  tokenizer::Source tokenizer;
  std::vector<FileRecord> files;
  std::vector<Piece> pieces;
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// The name of a piece's entry in its file.
std::string EntryName(const Piece& piece);

// Writes `directory`/MANIFEST.json, with a hash of itself in it, and makes it durable (the file,
// not the directory's entry).
absl::Status Write(const Manifest& manifest, const std::string& directory,
                   files::Disk& disk = files::Disk::Real());

// DATA_LOSS, with path, expected and found, if the manifest is damaged (it has a hash of itself),
// or if its step or generation differ from the directory's name (only if that is the name of a
// checkpoint). UNIMPLEMENTED if it is undamaged, as far as this program can tell, and of another
// version. Other errors, such as NOT_FOUND, mean that it could not be read.
absl::StatusOr<Manifest> Read(const std::string& directory);
// The same for the contents of `directory`/MANIFEST.json.
absl::StatusOr<Manifest> Parse(const std::string& text, const std::string& directory);

// DATA_LOSS unless the pieces cover each tensor exactly once, agree on its shape and dtype, and lie
// inside of files that are listed, which have a hash for each block.
absl::Status CheckComplete(const Manifest& manifest);

// Checks that the files of a complete manifest exist and have its sizes, without reading them.
// DATA_LOSS lists what is damaged, at most 3 entries. If nothing is damaged, other errors say what
// could not be found or read.
absl::Status CheckFiles(const std::string& directory, const Manifest& manifest);

// Read, CheckComplete, and every file against its size, its hash and its own header. Reads
// everything once. DATA_LOSS lists what is damaged, at most 3 entries. If nothing is damaged, other
// errors say what could not be found or read.
absl::StatusOr<Manifest> Verify(const std::string& directory);

}  // namespace muster::manifest

#endif  // MUSTER_COMMON_MANIFEST_MANIFEST_H_
