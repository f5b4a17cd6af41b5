#include "common/jobspec/validate_ema.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/jobspec/jobspec.h"

namespace muster::jobspec {

void ValidateEma(const v1::JobSpec& spec, uint64_t steps, ProblemList* problems) {
  if (spec.has_ema() && !Trains(spec)) {
    problems->Add("ema",
                  "averages the weights of training, but there is no stage fit; allowed: with a "
                  "stage fit");
  }
  if (spec.export_().from() == v1::ExportSpec::EMA && !spec.has_ema()) {
    problems->Add("export.from",
                  "found ema, but the job keeps no averages; allowed: last, or ema together with "
                  "the key ema");
  }
  // Another job's averages may be there at the start.
  const bool from_other = spec.has_start() && spec.start().what() != v1::StartSpec::WEIGHTS;
  if (steps == 0 || from_other || spec.ema().every() <= steps) return;
  problems->Add("ema.every",
                absl::StrCat("found ", spec.ema().every(),
                             ", but no average would ever be made in the steps of all fit stages; "
                             "allowed: 1 to ",
                             steps));
}

}  // namespace muster::jobspec
