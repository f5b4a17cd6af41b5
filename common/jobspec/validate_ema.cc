#include "common/jobspec/validate_ema.h"

#include "common/jobspec/jobspec.h"

namespace muster::jobspec {

void ValidateEma(const v1::JobSpec& spec, ProblemList* problems) {
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
}

}  // namespace muster::jobspec
