// Tells people what was noted about the files of a data set (worker/data/notes.h).
#ifndef MUSTER_WORKER_TRAIN_DATA_DATA_NOTICES_H_
#define MUSTER_WORKER_TRAIN_DATA_DATA_NOTICES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "worker/data/notes.h"
#include "worker/train/data/rank_data.h"
#include "worker/train/reports/outside.h"
#include "worker/train/reports/session_reports.h"

namespace muster::train {

// One notice for each kind of note, DATA_CONVERTED and DATA_DOUBTFUL, with at most three notes.
// `name`: "data.train", or "rank 1: data.train". Pure.
std::vector<Notice> DataNotices(const std::string& name, const std::vector<data::Note>& notes,
                                int64_t step);

// Reports and logs them: those of files that all ranks share on the leading rank, those of a rank's
// own file on that rank.
void ReportNotes(const std::string& name, const RankData& data, int64_t rank, int64_t step,
                 const SessionReports& reports);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_DATA_DATA_NOTICES_H_
