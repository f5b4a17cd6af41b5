// A job's data set as one rank holds it: a set that is common to all ranks, or a file of the rank's
// own.
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
#include "worker/train/reports/outside.h"
#include "worker/train/reports/session_reports.h"

namespace muster::train {

struct RankData {
  std::unique_ptr<data::Dataset> dataset;
  // Samples in each rank's own file, in rank order; empty: the set is common. Equal on all ranks.
  std::vector<int64_t> own_sizes;

  // What the sampler of this rank needs to know of the files; absent if the set is common.
  std::optional<data::OwnFile> Own(int64_t rank) const;
  // The plan of a pass over every sample once, at most `per_rank` of them at a time on a rank.
  data::EvaluationPlan Evaluation(int64_t world_size, int64_t per_rank) const;
};

// A collective: opens the files that this rank reads, for a model that takes `input`, and checks
// their tokens or labels: of files that all ranks share each rank reads only its part, of its own
// file all. What any rank finds is the error of all of them (agreement.h). With kAllowed some
// of the ranks' own files may have no samples. `name`: "data.train", "data.test", ..., for errors.
// Errors: the data set's; INVALID_ARGUMENT if the number of files is not the number of ranks; the
// communicator's.
absl::StatusOr<RankData> OpenRankData(const std::string& name, const DataConfig& config,
                                      const models::InputSpec& input, data::Emptiness emptiness,
                                      comm::Communicator& communicator,
                                      data::Labels labels = data::Labels::kNeeded);

// Whether the rows of a data set have their numbers in the order of the model's input. `row`: the
// dimensions of a row, with as many numbers as the model takes. A row may join neighbouring
// dimensions of the input ([784] or [28, 28] for [1, 28, 28]) or split them. INVALID_ARGUMENT: it
// is another order of the dimensions, such as [28, 28, 3] for [3, 28, 28]. OK for a model whose
// input has no shape.
absl::Status CheckRowShape(const v1::ModelSpec& model, const std::vector<int64_t>& row);

// A set of data as one rank has opened it. Its tokenizer may be unknown.
struct TokenizedSet {
  std::string name;  // "data.train"
  tokenizer::Source tokenizer;
};

// The same on all ranks: the first tokenizer that is known, by rank and then in the order of
// `sets`; an unknown one if no rank knows any. Where each rank has files of its own, some of them
// may have no sidecar. Collective. Errors: INVALID_ARGUMENT: two sets, or the files of two ranks,
// were made with two tokenizers; the communicator's.
absl::StatusOr<tokenizer::Source> TokenizerOfJob(const std::vector<TokenizedSet>& sets,
                                                 comm::Communicator& communicator);

// One notice for each kind of note (worker/data/notes.h), DATA_CONVERTED and DATA_DOUBTFUL, with at
// most three notes. `name`: "data.train", or "rank 1: data.train". Pure.
std::vector<Notice> DataNotices(const std::string& name, const std::vector<data::Note>& notes,
                                int64_t step);

// Reports and logs them: those of files that all ranks share on the leading rank, those of a rank's
// own file on that rank.
void ReportNotes(const std::string& name, const RankData& data, int64_t rank, int64_t step,
                 const SessionReports& reports);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_DATA_RANK_DATA_H_
