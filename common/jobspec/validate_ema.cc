#include "common/jobspec/validate_ema.h"

#include "absl/strings/str_cat.h"
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

void ValidateEmaSteps(const v1::JobSpec& spec, uint64_t total_steps, ProblemList* problems) {
  const bool used = spec.ema().evaluate() || spec.export_().from() == v1::ExportSpec::EMA;
  if (!used || total_steps == 0 || spec.ema().every() <= total_steps) return;
  problems->Add("ema.every",
                absl::StrCat("found ", spec.ema().every(), ", but training ends after step ",
                             total_steps, ", before the first average; allowed: at most ",
                             total_steps));
}

}  // namespace muster::jobspec
