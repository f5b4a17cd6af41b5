#include "worker/train/training/single_sample.h"

#include <ATen/core/grad_mode.h>

#include <memory>
#include <string>

#include "common/status/status.h"
#include "worker/models/model.h"
#include "worker/models/seed.h"
#include "worker/models/unit.h"
#include "worker/train/ranks/guarded.h"
#include "worker/train/training/setup.h"

namespace muster::train {

std::string WhyNoSingleSample(const Job& job, const data::Dataset& dataset) {
  Job plain = job;
  plain.spec.mutable_model()->clear_weights();
  plain.spec.mutable_model()->clear_weights_from();
  const at::NoGradGuard no_grad;
  models::ForwardContext context(models::Mode::kTrain, models::MakeGenerator(job.seed, at::kCPU));
  std::unique_ptr<models::Model> model;
  const auto train_with = [&](int64_t samples) {
    return Guarded("a trial", [&]() -> absl::Status {
      model->Loss(dataset.Blank(samples), context);
      return absl::OkStatus();
    });
  };
  const absl::Status built = Guarded("a trial", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(model, BuildModel(plain));
    return absl::OkStatus();
  });
  if (!built.ok() || !train_with(2).ok()) return "";
  return Message(train_with(1));
}

}  // namespace muster::train
