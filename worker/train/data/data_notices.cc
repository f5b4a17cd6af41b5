#include "worker/train/data/data_notices.h"

#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "common/problems/problems.h"
#include "worker/data/dataset.h"

namespace muster::train {

std::vector<Notice> DataNotices(const std::string& name, const std::vector<data::Note>& notes,
                                int64_t step) {
  Problems converted, doubtful;
  for (const data::Note& note : notes) {
    (note.kind == data::Note::Kind::kCast ? converted : doubtful).Add(note.text);
  }
  std::vector<Notice> notices;
  const auto add = [&](const char* reason, const Problems& texts) {
    if (texts.count() == 0) return;
    notices.push_back({reason, absl::StrCat(name, ": ", texts.Text()), step});
  };
  add("DATA_CONVERTED", converted);
  add("DATA_DOUBTFUL", doubtful);
  return notices;
}

void ReportNotes(const std::string& name, const RankData& data, int64_t rank, int64_t step,
                 const SessionReports& reports) {
  const bool own = !data.own_sizes.empty();
  if (!own && !reports.leader()) return;
  const std::string where = own ? absl::StrCat("rank ", rank, ": ", name) : name;
  for (const Notice& notice : DataNotices(where, data.dataset->notes(), step)) {
    spdlog::warn("{}", notice.message);
    reports.ReportOfRank(notice);
  }
}

}  // namespace muster::train
