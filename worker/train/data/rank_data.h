// A rank's view of a data set of the job: a set that all ranks share, or a file of its own.
#ifndef MUSTER_WORKER_TRAIN_DATA_RANK_DATA_H_
#define MUSTER_WORKER_TRAIN_DATA_RANK_DATA_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/source.h"
#include "proto/muster/v1/job_spec.pb.h"
#include "worker/comm/communicator.h"
#include "worker/data/dataset.h"
#include "worker/data/evaluation.h"
#include "worker/data/notes.h"
#include "worker/data/sampler.h"
#include "worker/models/batch.h"
#include "worker/train/job/job.h"
#include "worker/train/reports/coordinator_interface.h"
#include "worker/train/reports/session_reports.h"

namespace muster::train {

struct RankData {
  std::unique_ptr<data::Dataset> dataset;
  // The number of samples in each rank's own file, in rank order; empty: all ranks share the set.
  // Equal on all ranks.
  std::vector<int64_t> own_sizes;

  // Returns what the sampler of `rank` needs to know about the ranks' own files; absent: all ranks
  // share the set.
  std::optional<data::OwnFile> Own(int64_t rank) const;
  // Returns the plan of a pass over every sample once, with at most `per_rank` samples at a time.
  data::EvaluationPlan Evaluation(int64_t world_size, int64_t per_rank) const;
};

// Opens the files that this rank reads, for a model that takes `input`, and checks their tokens or
// labels. A collective. Of shared files, each rank checks one part; of its own file, everything. An
// error of any rank is an error of all ranks (agreement.h). With kAllowed, some ranks' own files
// may be empty. `name`: "data.train", "data.test", ..., for errors. Errors: the data set's;
// INVALID_ARGUMENT if the number of files is not the number of ranks; the communicator's.
absl::StatusOr<RankData> OpenRankData(const std::string& name, const DataConfig& config,
                                      const models::InputSpec& input, data::Emptiness emptiness,
                                      comm::Communicator& communicator,
                                      data::Labels labels = data::Labels::kNeeded);

// Checks that the numbers of a row come in the order of the model's input. `row`: the dimensions of
// a row, with as many numbers as the model takes. A row may join neighbouring dimensions of the
// input ([784] or [28, 28] for [1, 28, 28]) or split a dimension. INVALID_ARGUMENT for another
// order, such as [28, 28, 3] for [3, 28, 28]. OK for a model whose input has no shape.
absl::Status CheckRowShape(const v1::ModelSpec& model, const std::vector<int64_t>& row);

// A data set of one rank. Its tokenizer may be unknown.
struct TokenizedSet {
  std::string name;  // "data.train"
  tokenizer::Source tokenizer;
};

// Returns the first known tokenizer, by rank and then in the order of `sets`; an unknown one if no
// rank knows a tokenizer. The same on all ranks. A collective. Ranks with files of their own may
// lack a sidecar with the tokenizer. Errors: INVALID_ARGUMENT if two sets, or the files of two
// ranks, were made with different tokenizers; the communicator's.
absl::StatusOr<tokenizer::Source> TokenizerOfJob(const std::vector<TokenizedSet>& sets,
                                                 comm::Communicator& communicator);

// Returns one notice for each kind of note (worker/data/notes.h): DATA_CONVERTED, DATA_DOUBTFUL
// and DATA_ARRANGED.
// A notice has at most three notes. `name`: "data.train", or "rank 1: data.train". Pure.
std::vector<Notice> DataNotices(const std::string& name, const std::vector<data::Note>& notes,
                                int64_t step);

// Reports and logs the notes of the data. The leading rank does so for shared files, each rank for
// its own file.
void ReportNotes(const std::string& name, const RankData& data, int64_t rank, int64_t step,
                 const SessionReports& reports);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_DATA_RANK_DATA_H_
