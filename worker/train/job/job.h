// The job that a session trains, with defaults, and its parts in the types that the session uses.
// worker/control makes a Job from a v1::JobSpec.
#ifndef MUSTER_WORKER_TRAIN_JOB_JOB_H_
#define MUSTER_WORKER_TRAIN_JOB_JOB_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/trainability/trainability.h"
#include "proto/muster/v1/job_spec.pb.h"
#include "worker/data/idx_dataset.h"
#include "worker/data/npy_dataset.h"
#include "worker/data/safetensors_dataset.h"
#include "worker/data/sampler.h"
#include "worker/data/tokens/documents_dataset.h"
#include "worker/data/tokens/token_dataset.h"
#include "worker/models/language/next_token.h"
#include "worker/models/model.h"
#include "worker/optim/groups.h"
#include "worker/optim/loss_scaler.h"
#include "worker/optim/options.h"
#include "worker/optim/schedule.h"
#include "worker/parallel/ddp/ddp.h"
#include "worker/parallel/fsdp/fsdp.h"
#include "worker/parallel/sharded_ddp/sharded_ddp.h"
#include "worker/train/job/improvement.h"
#include "worker/train/job/input_plan.h"

namespace muster::train {

// Names the process. The pair (generation, incarnation) marks all that it writes or sends.
struct Identity {
  std::string job;
  // Distinguishes jobs with the same id under two coordinators. The same in all generations.
  std::string job_instance;
  int64_t generation = 0;
  int64_t rank = 0;
  std::string incarnation;
};

// A part of a mixture (worker/data/tokens/mixture.h).
struct MixturePart {
  std::vector<std::string> paths;
  double weight = 0;
};

struct TokenFiles {
  std::vector<std::string> paths;
  std::optional<data::TokenType> type;  // absent: by the model's vocabulary
  bool per_rank = false;  // true: one file for each rank; false: every rank reads all files
  std::vector<MixturePart> mixture = {};  // in place of paths, if there are any
};

struct DocumentFiles {
  std::vector<std::string> paths;
  data::Packed packed = data::Packed::kBestFit;
  std::vector<MixturePart> mixture = {};  // the same as in TokenFiles
};

// Safetensors files.
struct RowFiles {
  std::vector<std::string> paths;
  bool per_rank = false;  // the same as in TokenFiles
  data::ArrayNames names;
};

using DataConfig =
    std::variant<TokenFiles, DocumentFiles, RowFiles, data::IdxOptions, data::NpyOptions>;

struct DataConfigs {
  std::optional<DataConfig> train;
  std::optional<DataConfig> validate;
  std::optional<DataConfig> test;
  std::optional<DataConfig> predict;  // files without labels
};

struct OptimizerConfig {
  double lr = 0;
  optim::OptimizerOptions kind;
  std::vector<optim::ParameterGroup> groups;
  std::string state;  // the file with the initial state; empty: the state begins with zeros
};

// The type in which the forward pass computes matrix products and convolutions (autocast.h).
enum class Precision { kFloat32, kBfloat16, kFloat16 };

// The action if a loss, a gradient or a buffer is not finite.
enum class OnNan { kFail, kSkipStep };

// The action when the model's own code freezes or unfreezes parameters.
enum class RefreshMode {
  kAuto,    // the change takes effect at the next step
  kManual,  // the change takes effect when a command asks for it
};

// The use of the model in the session. Job::spec describes the model itself.
struct ModelConfig {
  std::optional<models::LossOptions> loss;  // absent: the model's own, else cross entropy
  std::vector<TrainableRule> trainable;
  RefreshMode refresh = RefreshMode::kAuto;
  // Activation checkpointing: patterns of units for SelectUnits; absent: nothing is recomputed.
  std::optional<std::vector<std::string>> recomputed_units;
};

struct NumericsConfig {
  int threads = 1;  // LibTorch's threads on the CPU
  Precision precision = Precision::kFloat32;
  optim::LossScaleOptions loss_scale;  // for Precision::kFloat16
  OnNan on_nan = OnNan::kFail;
  std::optional<double> clip_grad_norm;
};

struct BatchConfig {
  int64_t per_rank = 1;
  int64_t accumulate = 1;
  data::Order order = data::Order::kShuffled;
  data::Last last = data::Last::kDrop;
  UnevenInputs uneven_inputs = {};
};

using StrategyConfig =
    std::variant<parallel::DdpOptions, parallel::ShardedDdpOptions, parallel::FsdpOptions>;

// A prompt that the model continues after each validation pass of a fit stage.
struct FitSample {
  // The number of a document in the first file of data.validate, or, if it is absent, a text.
  std::optional<int64_t> document;
  std::string text;
  int64_t max_tokens = 1;
};

struct FitStage {
  int64_t steps = 1;
  int64_t validate_every = 0;  // steps, or epochs where `epochs` is set; 0: never
  int64_t epochs = 0;          // above 0: used in place of `steps`
  int64_t limit_steps = 0;     // the most steps of the stage; 0: no limit
  PassRules passes = {};       // the rules for the passes of validate_every
  std::optional<FitSample> sample = std::nullopt;
};
struct ValidateStage {};
struct TestStage {};
// Prompts for the model to continue.
struct GenerateConfig {
  std::vector<std::vector<int64_t>> prompts;
  std::string prompts_from;  // a file with the prompts, instead of `prompts`
  int64_t max_tokens = 1;
  models::Sampling sampling;
};
struct PredictStage {
  std::string output;
  enum class What { kLogits, kClasses };
  What what = What::kLogits;
  bool overwrite = false;
  std::optional<GenerateConfig> generate;  // instead of a prediction for the data `predict`
};
using Stage = std::variant<FitStage, ValidateStage, TestStage, PredictStage>;

struct CheckpointConfig {
  std::string directory;
  int64_t every_steps = 0;  // 0: only at the end of each fit stage
  bool background = true;   // written during training, except for the last save
};

// Another job's checkpoint from which the job begins.
struct StartConfig {
  std::string checkpoint;  // its directory, absolute
  enum class What { kWeights, kWeightsAndOptimizer, kEverything };
  What what = What::kWeights;
};

struct ExportConfig {
  std::string path;         // a safetensors file
  bool overwrite = false;   // replaces any file; otherwise only a file of a job with the same name
  std::string job_name;     // the job that will own the file
  int64_t every_steps = 0;  // 0: only when the job succeeds; otherwise also during training
  int64_t vocab_size = 0;   // the tokens that the export has: the first ones; 0: all
  // The folder whose tokenizer is copied to the weights; empty: none.
  std::string tokenizer_from = "";
  // The weights after the last step, those of the best checkpoint, or the averages.
  enum class From { kLast, kBest, kAverages };
  From from = From::kLast;
};

// An exponential moving average of the parameters (averages.h).
struct AverageConfig {
  double decay = 0.999;
  int64_t every = 1;      // optimizer steps from one update to the next
  bool evaluate = false;  // evaluation uses the averages in place of the parameters
};

// The memory for parameters on a rank during evaluation; only with FsdpOptions.
enum class EvaluationReshard { kAuto, kAlways, kNever };

struct EvaluationConfig {
  // `ema`: training updates the averages (training/averages.h); evaluation and exports may use
  // them.
  std::optional<AverageConfig> averages;
  EvaluationReshard reshard = EvaluationReshard::kAuto;
};

struct ProfileConfig {
  std::string directory;
  std::vector<int64_t> steps;  // step numbers, from 1
};

struct Job {
  // The job specification, valid and with defaults. It describes the model, and the ranks compare
  // it. All other fields are parts of it in the form that the session uses.
  v1::JobSpec spec;
  uint64_t seed = 0;
  ModelConfig model;
  DataConfigs data;
  StrategyConfig strategy;
  std::optional<OptimizerConfig> optimizer;  // needed by fit stages only
  // The schedule. An end of 0 means the last step of all fit stages, which may depend on the data.
  optim::Schedule schedule;
  BatchConfig batch;
  NumericsConfig numerics;
  std::vector<Stage> stages;
  std::optional<CheckpointConfig> checkpoint;
  std::optional<StartConfig> start;
  std::optional<ExportConfig> weights_export;
  EvaluationConfig evaluation;
  std::optional<ProfileConfig> profile;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_JOB_JOB_H_
