// One rank's parts of a session, without the session. For tests of single steps.
#ifndef MUSTER_WORKER_TRAIN_TRAINING_RANK_STEPS_H_
#define MUSTER_WORKER_TRAIN_TRAINING_RANK_STEPS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/status/status.h"
#include "worker/data/dataset.h"
#include "worker/train/data/rank_data.h"
#include "worker/train/step/finite.h"
#include "worker/train/step/step_result.h"
#include "worker/train/step/trained_parameters.h"
#include "worker/train/training/setup.h"
#include "worker/train/training/training.h"

namespace muster::train {

// Counts the reads in the thread that made this object. This thread must wait for such a read;
// ReadAhead reads in another thread.
class CountedReads : public data::Dataset {
 public:
  explicit CountedReads(std::unique_ptr<data::Dataset> dataset) : dataset_(std::move(dataset)) {}
  int64_t size() const override { return dataset_->size(); }
  absl::Status Check(const data::Part& part) const override { return dataset_->Check(part); }
  absl::StatusOr<data::Batch> Read(std::span<const int64_t> samples) const override {
    if (std::this_thread::get_id() == owner_) ++own_reads_;
    return dataset_->Read(samples);
  }
  data::Batch Blank(int64_t samples) const override { return dataset_->Blank(samples); }
  int own_reads() const { return own_reads_; }

 private:
  const std::unique_ptr<data::Dataset> dataset_;
  const std::thread::id owner_ = std::this_thread::get_id();
  mutable int own_reads_ = 0;  // in the thread owner_
};

// The model is on the device of the communicators for data.
class RankSteps {
 public:
  RankSteps(const Job& job, int rank, comm::Communicator& control, comm::Communicator& data,
            comm::Communicator& parameters)
      : job_(job), rank_(rank), model_(*BuildModel(job)) {
    data_ = *OpenRankData("data.train", *job.data.train, model_->Input(), data::Emptiness::kAllowed,
                          control);
    auto counted = std::make_unique<CountedReads>(std::move(data_.dataset));
    reads_ = counted.get();
    data_.dataset = std::move(counted);
    const bool in_shards = std::holds_alternative<parallel::FsdpOptions>(job.strategy);
    MoveTo(data.device(), *model_, in_shards ? Moved::kBuffers : Moved::kAll);
    finite_.emplace(*model_, data.device());
    trained_ = *TrainedParameters::Create(model_->Parameters(), {});
    for (size_t i = 0; i < data_.own_sizes.size(); ++i) samplers_.push_back(SamplerOf(i));
    auto training = Training::Create({.job = &job_,
                                      .rank = rank,
                                      .model = model_.get(),
                                      .trained = trained_.get(),
                                      .communicators = {&data, &parameters},
                                      .control = &control,
                                      .dataset = data_.dataset.get(),
                                      .sampler = &samplers_[rank],
                                      .finite = &*finite_},
                                     nullptr);
    EXPECT_TRUE(training.ok()) << training.status();
    training_ = *std::move(training);
  }

  // Gives the next step to the model's device.
  absl::StatusOr<PendingStep> Begin() {
    std::vector<RankInput> inputs;
    for (size_t rank = 0; rank < samplers_.size(); ++rank) {
      const auto share = samplers_[rank].ShareOf(position_, rank);
      inputs.push_back({share.micro_batches, share.samples, share.micro_batches == 0});
    }
    ++step_;
    auto step = training_->stepper().Run(
        {step_, position_, PlanInputs(inputs, job_.batch.uneven_inputs, 2 * samplers_.size()),
         0.01});
    position_ = samplers_[rank_].After(position_);
    return step;
  }
  absl::StatusOr<StepResult> Next() {
    ASSIGN_OR_RETURN(const PendingStep step, Begin());
    return step.await();
  }
  Training& training() { return *training_; }
  models::Model& model() { return *model_; }
  // The number of batches that the calling thread had to read itself.
  int own_reads() const { return reads_->own_reads(); }

 private:
  data::Sampler SamplerOf(int64_t rank) const {
    return *data::Sampler::Create({.size = data_.own_sizes[rank],
                                   .seed = job_.seed,
                                   .world_size = static_cast<int64_t>(data_.own_sizes.size()),
                                   .per_rank = job_.batch.per_rank,
                                   .accumulate = job_.batch.accumulate,
                                   .order = job_.batch.order,
                                   .last = job_.batch.last,
                                   .own = data_.Own(rank)});
  }

  const Job job_;
  const int rank_;
  std::unique_ptr<models::Model> model_;
  std::unique_ptr<TrainedParameters> trained_;
  RankData data_;
  const CountedReads* reads_ = nullptr;  // data_.dataset
  std::optional<FiniteCheck> finite_;
  std::vector<data::Sampler> samplers_;
  std::unique_ptr<Training> training_;
  data::Position position_;
  int64_t step_ = 0;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINING_RANK_STEPS_H_
