#include "tests/parity/sharded_ddp/training.h"

#include <utility>

#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "common/status/status.h"
#include "gtest/gtest.h"
#include "worker/models/autocast_state.h"
#include "worker/models/seed.h"
#include "worker/parallel/test_model.h"

namespace muster::parity {

train::Job JobOf(const Case& one, const train::StrategyConfig& strategy) {
  train::Job job;
  job.seed = 11;
  job.strategy = strategy;
  const std::vector<optim::ParameterGroup> groups = {
      {.match = "*bias", .weight_decay = 0.0, .lr_scale = 0.5}};
  switch (one.optimizer) {
    case OptimizerKind::kAdamW:
      job.optimizer = train::OptimizerConfig{
          kAdamWRate, optim::AdamWOptions{.eps = 1e-5, .weight_decay = 0.1}, groups};
      break;
    case OptimizerKind::kSgdMomentum:
      job.optimizer = train::OptimizerConfig{
          kSgdRate, optim::SgdOptions{.momentum = 0.9, .weight_decay = 0.01}, groups};
      break;
    case OptimizerKind::kLion:
      job.optimizer =
          train::OptimizerConfig{kLionRate, optim::LionOptions{.weight_decay = 0.3}, groups};
      break;
    case OptimizerKind::kAdadelta:
      job.optimizer = train::OptimizerConfig{
          kAdadeltaRate, optim::AdadeltaOptions{.eps = 1e-5, .weight_decay = 0.1}, groups};
      break;
    case OptimizerKind::kSeveral:
      job.optimizer = train::OptimizerConfig{
          kAdamWRate,
          optim::AdamWOptions{.eps = 1e-5, .weight_decay = 0.1},
          {{.match = "*weight", .lr = kAdamWRate / 2, .betas = {{0.8, 0.95}}},
           {.match = "*bias",
            .optimizer = optim::GroupOptimizer{kSgdRate, optim::SgdOptions{.momentum = 0.9}}}}};
      break;
  }
  job.schedule = optim::Constant{.warmup_steps = 2};
  job.batch = {.per_rank = 2, .accumulate = one.micro_batches()};
  switch (one.precision) {
    case PrecisionKind::kFloat32:
      break;
    case PrecisionKind::kBfloat16:
      job.numerics.precision = train::Precision::kBfloat16;
      break;
    case PrecisionKind::kFloat16:
      job.numerics.precision = train::Precision::kFloat16;
      job.numerics.loss_scale = {
          .initial = 0x1p30, .backoff_factor = 0x1p-20, .growth_interval = 2};
      break;
  }
  if (one.clip == Clip::kOn) job.numerics.clip_grad_norm = kMaxNorm;
  return job;
}

train::StrategyConfig Ddp() {
  return parallel::DdpOptions{.bucket_bytes = 3000, .first_bucket_bytes = 500};
}

train::StrategyConfig ShardedDdp(ReduceEvery reduce_every, bool reduce_in_bfloat16) {
  using Every = parallel::ShardedDdpOptions::ReduceEvery;
  return parallel::ShardedDdpOptions{
      .bucket_bytes = 3000,
      .first_bucket_bytes = 500,
      .reduce_every = reduce_every == ReduceEvery::kStep ? Every::kStep : Every::kMicroBatch,
      .reduce_in_bfloat16 = reduce_in_bfloat16};
}

namespace {

bool Same(const at::Tensor& a, const at::Tensor& b) { return parallel::SameBits(a, b); }

void ExpectAllHave(const NamedTensors& first, const NamedTensors& other, size_t rank) {
  ASSERT_EQ(first.size(), other.size());
  for (const auto& [name, tensor] : first) {
    const auto found = other.find(name);
    EXPECT_TRUE(found != other.end() && Same(found->second, tensor))
        << name << " differs between ranks 0 and " << rank;
  }
}

// Assembles tensors from the parts of the ranks. one_holder: one rank holds each element; otherwise
// all ranks do.
NamedTensors Assemble(const std::vector<RankState>& ranks,
                      std::vector<RankState::Part> RankState::* parts, bool one_holder) {
  NamedTensors wholes;
  std::map<std::string, at::Tensor> holders;  // of each element, counted
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const RankState::Part& part : ranks[rank].*parts) {
      at::Tensor& whole = wholes[part.name];
      at::Tensor& count = holders[part.name];
      if (!whole.defined()) {
        whole = at::zeros(part.shape, part.tensor.options());
        count = at::zeros({whole.numel()});
      }
      at::Tensor place = whole.view({-1}).narrow(0, part.begin, part.tensor.numel());
      at::Tensor held = count.narrow(0, part.begin, part.tensor.numel());
      const at::Tensor found = part.tensor.reshape({-1});
      // Each piece of a parameter has a copy of the parameter's number of steps.
      if (part.tensor.numel() > 0 && held.data_ptr<float>()[0] > 0) {
        EXPECT_TRUE(Same(place.contiguous(), found)) << part.name << " differs on rank " << rank;
      }
      place.copy_(found);
      held.add_(1);
      if (part.scalar) held.fill_(one_holder ? 1 : rank + 1);
    }
  }
  for (const auto& [name, count] : holders) {
    const float expected = one_holder ? 1 : ranks.size();
    for (int64_t i = 0; i < count.numel(); ++i) {
      if (count.data_ptr<float>()[i] == expected) continue;
      ADD_FAILURE() << name << ": element " << i << " is held by " << count.data_ptr<float>()[i]
                    << " ranks, not by " << expected;
      break;
    }
  }
  return wholes;
}

}  // namespace

State PutTogether(const std::vector<RankState>& ranks, bool sharded) {
  c10::NoGradGuard no_grad;
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    ExpectAllHave(ranks[0].parameters, ranks[rank].parameters, rank);
    ExpectAllHave(ranks[0].others, ranks[rank].others, rank);
  }
  State state{.parameters = ranks[0].parameters,
              .others = ranks[0].others,
              .optimizer = Assemble(ranks, &RankState::optimizer, sharded)};
  state.parameters.merge(Assemble(ranks, &RankState::shards, /*one_holder=*/true));
  return state;
}

class RankTraining::ObservedOptimizer : public optim::Optimizer {
 public:
  ObservedOptimizer(std::unique_ptr<optim::Optimizer> optimizer, std::function<void()> before)
      : optimizer_(std::move(optimizer)), before_(std::move(before)) {}
  absl::Status CheckGradients(std::optional<size_t> bucket) const override {
    return optimizer_->CheckGradients(bucket);
  }
  std::vector<optim::NamedTensor> State() override { return optimizer_->State(); }

 private:
  absl::Status Update(double learning_rate, std::optional<size_t> bucket,
                      const LeftOut& left_out) override {
    before_();
    return bucket.has_value() ? optimizer_->StepBucket(*bucket, learning_rate, left_out.unused)
                              : optimizer_->Step(learning_rate, left_out.skip, left_out.unused);
  }

  const std::unique_ptr<optim::Optimizer> optimizer_;
  const std::function<void()> before_;
};

RankTraining::RankTraining(const train::Job& job, Workload workload,
                           comm::Communicator* communicator)
    : job_(job),
      workload_(std::move(workload)),
      communicator_(communicator),
      finite_(*workload_.model) {
  models::AutocastState autocast = models::AutocastState::Now(c10::DeviceType::CPU);
  autocast.keeps_casts = false;
  autocast.Set();
  const absl::Status status = Build();
  EXPECT_TRUE(status.ok()) << status;
}

absl::Status RankTraining::Build() {
  models::Model& model = *workload_.model;
  ASSIGN_OR_RETURN(sampler_, data::Sampler::Create({.size = workload_.dataset->size(),
                                                    .seed = job_.seed,
                                                    .world_size = communicator_->world_size(),
                                                    .per_rank = job_.batch.per_rank,
                                                    .accumulate = job_.batch.accumulate,
                                                    .order = job_.batch.order,
                                                    .last = job_.batch.last}));
  ASSIGN_OR_RETURN(strategy_, train::BuildStrategy(job_, model, communicator_));
  context_ = strategy_->MakeContext(models::Mode::kTrain, models::MakeGenerator(job_.seed));
  ASSIGN_OR_RETURN(const auto recomputed, train::RecomputedUnits(job_, model));
  context_->Recompute(recomputed);
  ASSIGN_OR_RETURN(slots_, train::SlotsFor(*job_.optimizer, model));
  ASSIGN_OR_RETURN(auto optimizer,
                   train::BuildOptimizer(*job_.optimizer, model, strategy_->pieces()));
  optimizer_ = std::make_unique<ObservedOptimizer>(std::move(optimizer), [this] {
    if (!std::exchange(updating_, true) && on_update_) on_update_();
  });
  if (job_.numerics.precision == train::Precision::kFloat16)
    scaler_.emplace(job_.numerics.loss_scale);
  stepper_.emplace(train::Stepper::Dependencies{
      &job_, communicator_->rank(), &model, context_.get(),
      /*control=*/nullptr, communicator_, workload_.dataset.get(), &*sampler_, strategy_.get(),
      optimizer_.get(), scaler_ ? &*scaler_ : nullptr, &finite_});
  return absl::OkStatus();
}

absl::StatusOr<train::StepResult> RankTraining::Step() {
  updating_ = false;
  const double divisor = static_cast<double>(communicator_->world_size() * job_.batch.accumulate);
  ASSIGN_OR_RETURN(
      const train::PendingStep result,
      stepper_->Run({.step = step_ + 1,
                     .position = position_,
                     .inputs = {.divisor = divisor, .micro_batches = job_.batch.accumulate},
                     .learning_rate = job_.optimizer->lr}));
  position_ = sampler_->After(position_);
  ++step_;
  return result.await();
}

int64_t RankTraining::BeginOf(const std::string& parameter) const {
  const auto parameters = workload_.model->Parameters();
  for (const parallel::Piece& piece : strategy_->pieces()) {
    if (parameters[piece.parameter].name == parameter) return piece.begin;
  }
  ADD_FAILURE() << parameter << " has a state, but no piece";
  return 0;
}

RankState RankTraining::Copy(bool with_parameters) const {
  c10::NoGradGuard no_grad;
  RankState state;
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, tensor] : workload_.model->Parameters()) {
    shapes[name] = tensor.sizes().vec();
    if (with_parameters && strategy_->store().shards() == nullptr) {
      state.parameters["param/" + name] = tensor.detach().clone();
    }
  }
  if (with_parameters && strategy_->store().shards() != nullptr) {
    const auto parameters = workload_.model->Parameters();
    for (const parallel::Piece& piece : strategy_->store().shards()->held) {
      const auto& [name, tensor] = parameters[piece.parameter];
      state.shards.push_back({.name = "param/" + name,
                              .shape = tensor.sizes().vec(),
                              .begin = piece.begin,
                              .tensor = piece.tensor.detach().clone()});
    }
  }
  for (const auto& [name, tensor] : workload_.model->Buffers()) {
    state.others["buffer/" + name] = tensor.clone();
  }
  if (scaler_) {
    for (const auto& piece : const_cast<optim::LossScaler&>(*scaler_).State()) {
      state.others["scaler/" + piece.parameter] = piece.tensor.clone();
    }
  }
  std::map<std::string, bool> scalars;
  for (const auto& own : slots_) {
    for (const optim::StateSlot& slot : own) scalars[slot.name] = slot.scalar;
  }
  for (const auto& piece : optimizer_->State()) {
    const bool scalar = scalars.at(piece.slot);
    state.optimizer.push_back(
        {.name = piece.slot + "/" + piece.parameter,
         .scalar = scalar,
         .shape = scalar ? std::vector<int64_t>() : shapes.at(piece.parameter),
         .begin = scalar ? 0 : BeginOf(piece.parameter),
         .tensor = piece.tensor.clone()});
  }
  return state;
}

void RankTraining::Become(const State& state) {
  c10::NoGradGuard no_grad;
  const auto become = [](at::Tensor tensor, const NamedTensors& from, const std::string& name) {
    if (const auto found = from.find(name); found != from.end()) tensor.copy_(found->second);
  };
  const auto parameters = workload_.model->Parameters();
  if (strategy_->store().shards() == nullptr) {
    for (const auto& [name, tensor] : parameters) {
      become(tensor.detach(), state.parameters, "param/" + name);
    }
  } else {
    for (const parallel::Piece& piece : strategy_->store().shards()->held) {
      const auto found = state.parameters.find("param/" + parameters[piece.parameter].name);
      if (found == state.parameters.end()) continue;
      at::Tensor(piece.tensor)
          .copy_(found->second.reshape({-1}).narrow(0, piece.begin, piece.tensor.numel()));
    }
    strategy_->FinishUpdate();  // what was gathered ahead has the old values
  }
  for (const auto& [name, tensor] : workload_.model->Buffers()) {
    become(tensor, state.others, "buffer/" + name);
  }
  if (scaler_) {
    for (const auto& piece : scaler_->State()) {
      become(piece.tensor, state.others, "scaler/" + piece.parameter);
    }
  }
  for (const auto& piece : optimizer_->State()) {
    const auto found = state.optimizer.find(piece.slot + "/" + piece.parameter);
    if (found == state.optimizer.end()) continue;
    const bool scalar = found->second.dim() == 0;
    at::Tensor tensor = piece.tensor;
    tensor.view({-1}).copy_(found->second.reshape({-1}).narrow(
        0, scalar ? 0 : BeginOf(piece.parameter), tensor.numel()));
  }
}

checkpoint::State RankTraining::Live() const {
  return train::TrainingState(
      *workload_.model,
      {.strategy = strategy_.get(),
       .optimizer = optimizer_.get(),
       .slots = &slots_,
       .scaler = const_cast<optim::LossScaler*>(scaler_ ? &*scaler_ : nullptr)},
      communicator_->world_size());
}

std::vector<StepRecord> Train(const train::Job& job, const std::function<Workload()>& make,
                              int world_size, int64_t steps,
                              const std::vector<StepRecord>* follow) {
  // The states after s steps at index s, by rank.
  std::vector<std::vector<RankState>> states(steps + 1, std::vector<RankState>(world_size));
  std::vector<StepRecord> records(steps);
  for (StepRecord& record : records) record.loss_sums.resize(world_size);
  parallel::RunRanks(world_size, [&](comm::Communicator& ranks) {
    const int rank = ranks.rank();
    RankTraining training(job, make(), &ranks);
    if (!training.ok()) return;
    int64_t known = 0;  // the parameters after so many steps are in `states`, and those before
    const auto parameters_are_known = [&](int64_t step) {
      const RankState now = training.Copy(/*with_parameters=*/true);
      for (; known <= step; ++known) {
        states[known][rank].parameters = now.parameters;
        states[known][rank].shards = now.shards;
      }
    };
    // Steps that were left out have changed no parameter.
    training.OnUpdate([&] { parameters_are_known(training.steps_done()); });
    for (int64_t step = 0; step < steps; ++step) {
      if (follow != nullptr && step > 0) {
        const absl::Status awaited = training.strategy().AwaitParameters();
        EXPECT_TRUE(awaited.ok()) << awaited;
        parameters_are_known(step);
        training.Become((*follow)[step - 1].after);
      }
      const auto result = training.Step();
      EXPECT_TRUE(result.ok()) << "step " << step + 1 << ": " << result.status();
      if (!result.ok()) return;
      records[step].loss_sums[rank] = result->loss_sum;
      if (rank == 0) {
        const auto& metrics = result->metrics;
        if (metrics.has_grad_norm()) records[step].grad_norm = metrics.grad_norm();
        records[step].outcome = result->outcome;
      }
      RankState after = training.Copy(/*with_parameters=*/false);
      states[step + 1][rank].others = std::move(after.others);
      states[step + 1][rank].optimizer = std::move(after.optimizer);
    }
    const absl::Status awaited = training.strategy().AwaitParameters();
    EXPECT_TRUE(awaited.ok()) << awaited;
    parameters_are_known(steps);
  });
  if (testing::Test::HasFailure()) return records;
  const bool sharded = !std::holds_alternative<parallel::DdpOptions>(job.strategy);
  for (int64_t step = 0; step < steps; ++step) {
    records[step].after = PutTogether(states[step + 1], sharded);
  }
  return records;
}

}  // namespace muster::parity
