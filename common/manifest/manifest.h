// MANIFEST.json: the contents of a checkpoint directory (docs/reference/checkpoint-format.md). This
// code does not use LibTorch, so that the command line can use it.
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
  // The hash of each files::kHashedBlock bytes of the file, in the same form.
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
  // The byte of the file at which the first element lies.
  int64_t offset = 0;
  friend bool operator==(const Piece&, const Piece&) = default;
};

// A command that failed when it took effect, and so changed nothing. `reason`: a code for programs.
struct FailedCommand {
  int64_t number = 0;
  absl::Status status;
  std::string reason;
  friend bool operator==(const FailedCommand&, const FailedCommand&) = default;
};

// The present state of everything that commands have changed.
struct Steering {
  // Commands that the ranks have received and that have not taken effect.
  std::vector<int64_t> waiting_commands;
  // The learning rate in place of the job's own.
  std::optional<double> learning_rate;
  // The version of the rules for trained parameters. 0: as in the job file (a manifest without
  // versions).
  int64_t trainability_version = 0;
  std::vector<TrainableRule> rules;
  // Parameters that model code has frozen or unfrozen, without an effect so far.
  std::vector<std::string> pending;
  // The newest commands that took effect: number and step.
  std::vector<std::pair<int64_t, int64_t>> applied;
  // The commands of `applied` that failed.
  std::vector<FailedCommand> failed;
  // A validation pass was due after this step and was not run, because the job had to leave its
  // node. A generation that continues from this checkpoint runs the pass first.
  bool validation_due = false;
  ValidationRecord validations;
  friend bool operator==(const Steering&, const Steering&) = default;
};

// Settings of the optimizer for some of the parameters, by their names in the job file ("lr",
// "betas"). Each has its numbers; true and false are 1 and 0.
using OptimizerSettings = std::vector<std::pair<std::string, std::vector<double>>>;

struct OptimizerRecord {
  std::string kind;  // "adamw"; empty: the job trains nothing
  std::vector<OptimizerSettings> groups;
  // The kind of each group; empty: `kind` for all.
  std::vector<std::string> kinds;

  const std::string& KindOf(size_t group) const { return kinds.empty() ? kind : kinds[group]; }
  friend bool operator==(const OptimizerRecord&, const OptimizerRecord&) = default;
};

struct ParameterRecord {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype;
  bool trainable = false;
  // Whether the parameter was ever trained, also if it is frozen at present. The optimizer has its
  // state then (if this kind of optimizer keeps any).
  bool ever_trained = false;
  int64_t group = 0;  // of the optimizer
  friend bool operator==(const ParameterRecord&, const ParameterRecord&) = default;
};

// The version of the format that Write writes. Read refuses all others.
inline constexpr int64_t kVersion = 3;

struct Manifest {
  std::string job;
  // An id that distinguishes the job from another job of the same name.
  std::string job_instance;
  int64_t step = 0;
  int64_t generation = 0;
  int64_t last_command = 0;
  Steering steering;
  int64_t epoch = 0;
  int64_t cursor = 0;
  // Records from the first step of the training on. Empty if an older program wrote the checkpoint.
  std::vector<SamplingRecord> sampling;
  int64_t world_size = 0;
  std::string strategy;
  std::string model_kind;
  OptimizerRecord optimizer;
  // The parameters in the order in which the source model registers them (Hugging Face's, if it has
  // this model). The position is the index in the state of a Python optimizer.
  std::vector<ParameterRecord> parameters;
  // The model's config.json as a JSON object. Empty if transformers does not have this kind of
  // model.
  std::string config;
  // The absolute path of the file with the model's first weights, or empty.
  std::string first_weights;
  // The settings that decide how the job trains (jobspec::TrainingSettingsJson), without the
  // changes of commands; a JSON object, or empty.
  std::string settings;
  // The tokenizer of the tokens on which the model was trained, if known.
  tokenizer::Source tokenizer;
  // The hash of the files that say what the model computes; empty if there are none.
  std::string model_hash;
  std::vector<FileRecord> files;
  std::vector<Piece> pieces;
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// The name of a piece's entry in its file.
std::string EntryName(const Piece& piece);

// Writes `directory`/MANIFEST.json, with its own hash in it. Makes the file durable, but not the
// directory's entry.
absl::Status Write(const Manifest& manifest, const std::string& directory,
                   files::Disk& disk = files::Disk::Real());

// Reads `directory`/MANIFEST.json.
// - DATA_LOSS, with path, expected and found: the manifest does not have its own hash. Or its step
//   or generation differ from the directory's name, if that is the name of a checkpoint.
// - UNIMPLEMENTED: the manifest is of another version, and undamaged as far as this program can
//   tell.
// - Other errors, such as NOT_FOUND: the manifest could not be read.
absl::StatusOr<Manifest> Read(const std::string& directory);
// Parses the contents of `directory`/MANIFEST.json; errors as of Read.
absl::StatusOr<Manifest> Parse(const std::string& text, const std::string& directory);

// DATA_LOSS unless the pieces cover each tensor exactly once, and agree on its shape and dtype. The
// pieces must lie inside of listed files, which have a hash for each block.
absl::Status CheckComplete(const Manifest& manifest);

// Checks that the files of a complete manifest exist and have their sizes, without reading them.
// DATA_LOSS: damaged files, at most 3 in the list. Without damage, other errors say which files
// were not found or not readable.
absl::Status CheckFiles(const std::string& directory, const Manifest& manifest);

// Calls Read and CheckComplete, and checks every file against its size, its hash and its own
// header. Reads everything once. DATA_LOSS: damaged files, at most 3 in the list. Without damage,
// other errors say which files were not found or not readable.
absl::StatusOr<Manifest> Verify(const std::string& directory);

}  // namespace muster::manifest

#endif  // MUSTER_COMMON_MANIFEST_MANIFEST_H_
