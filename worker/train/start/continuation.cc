#include "worker/train/start/continuation.h"

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/str_cat.h"
#include "worker/data/sampler.h"

namespace muster::train {
namespace {

using manifest::SamplingRecord;

constexpr std::array<std::pair<data::Last, const char*>, 3> kLasts = {
    {{data::Last::kDrop, "drop"}, {data::Last::kPad, "pad"}, {data::Last::kUneven, "uneven"}}};
constexpr std::array<std::pair<data::Order, const char*>, 3> kOrders = {
    {{data::Order::kShuffled, "shuffled"},
     {data::Order::kSequential, "sequential"},
     {data::Order::kShuffledV2, "shuffled_v2"}}};

// The most batch sizes that are tried for a checkpoint without a recorded batch.
constexpr int64_t kMostTried = 100'000;

template <typename Value, size_t kSize>
std::string NameOf(Value value, const std::array<std::pair<Value, const char*>, kSize>& names) {
  for (const auto& [one, name] : names) {
    if (one == value) return name;
  }
  return "";
}

// Returns absent if a newer program wrote the record.
std::optional<data::Pace> PaceOf(const SamplingRecord& record) {
  for (const auto& [last, name] : kLasts) {
    if (record.last == name) return data::Pace{record.samples, record.global_batch, last};
  }
  return std::nullopt;
}

bool SamePace(const SamplingRecord& a, const SamplingRecord& b) { return PaceOf(a) == PaceOf(b); }

bool SameOrder(const SamplingRecord& a, const SamplingRecord& b) {
  const bool drawn = a.order != NameOf(data::Order::kSequential, kOrders);
  return a.order == b.order && a.per_rank == b.per_rank && (!drawn || a.seed == b.seed);
}

data::Position PositionOf(const SamplingRecord& record) { return {record.epoch, record.cursor}; }

// Whether these records lead to the position of the checkpoint.
bool Fits(const std::vector<SamplingRecord>& sampling, const CheckpointSampling& past) {
  if (sampling.empty() || sampling[0].step != 0) return false;
  for (size_t i = 0; i < sampling.size(); ++i) {
    const std::optional<data::Pace> pace = PaceOf(sampling[i]);
    if (!pace.has_value() || pace->steps_per_epoch() == 0) return false;
    // A skip may begin another span at the same step.
    const int64_t least = i == 0 ? 0 : sampling[i - 1].step + (sampling[i].skipped ? 0 : 1);
    if (sampling[i].step < least) return false;
  }
  return sampling.back().step <= past.step &&
         TimelineOf(sampling).After(past.step) == past.position;
}

// Returns the samples that all steps have consumed, without dropped and added samples.
int64_t Consumed(const CheckpointSampling& past, const SamplingRecord& own) {
  return past.position.epoch * own.samples + past.position.cursor;
}

// Returns a batch size with which past.step steps consume at most the consumed samples.
int64_t Slowest(const CheckpointSampling& past, const SamplingRecord& own) {
  const int64_t ends = past.position.epoch + 1;
  return std::max<int64_t>(Consumed(past, own) / (past.step + ends), 1);
}

// Returns the records that led to the checkpoint; empty if they are not known.
std::vector<SamplingRecord> History(const CheckpointSampling& past,
                                    const SessionSampling& present) {
  if (!past.sampling.empty()) {
    return Fits(past.sampling, past) ? past.sampling : std::vector<SamplingRecord>();
  }
  SamplingRecord likely = present.sampling;
  likely.global_batch = likely.global_batch / present.world_size * past.world_size;
  if (likely.global_batch > 0 && Fits({likely}, past)) return {likely};
  // Each end of an epoch drops or adds less than one batch.
  const int64_t consumed = Consumed(past, present.sampling);
  const int64_t ends = past.position.epoch + 1;
  const int64_t least = Slowest(past, present.sampling);
  const int64_t most = consumed / std::max<int64_t>(past.step - ends, 1) + 1;
  for (int64_t batch = least; batch <= std::min(most, least + kMostTried); ++batch) {
    likely.global_batch = batch;
    if (Fits({likely}, past)) return {likely};
  }
  return {};
}

// Returns a record for earlier steps with an unknown batch. Its batch is at most the real batch.
SamplingRecord Unknown(const CheckpointSampling& past, SamplingRecord own) {
  own.global_batch = Slowest(past, own);
  own.last = NameOf(data::Last::kPad, kLasts);
  return own;
}

std::string Instead(const char* what, int64_t now, int64_t before) {
  return now == before ? absl::StrCat(now, what) : absl::StrCat(now, what, " instead of ", before);
}

std::string DescribeOrder(const SamplingRecord& record) {
  const bool drawn = record.order != NameOf(data::Order::kSequential, kOrders);
  return absl::StrCat("order ", record.order, drawn ? absl::StrCat(" and seed ", record.seed) : "",
                      record.per_rank ? ", each rank from files of its own" : "");
}

constexpr char kTwice[] =
    "in this epoch some samples come twice and some not at all; from the next epoch on each comes "
    "once";

// Adds notices of a changed size or order of the data. `begin`: the position of the next step.
void TellOfData(const SamplingRecord& before, const SamplingRecord& now, data::Position begin,
                Continuation* continuation) {
  const bool shuffled = now.order != NameOf(data::Order::kSequential, kOrders);
  const bool same_order = SameOrder(before, now);
  const bool within = begin.cursor > 0;
  const std::string place = absl::StrCat("epoch ", begin.epoch, ", sample ", begin.cursor);
  if (before.samples != now.samples) {
    continuation->told.emplace_back(
        "DATA_SIZE_CHANGED",
        absl::StrCat("data.train has ", now.samples, " samples in an epoch, and had ",
                     before.samples, " when the checkpoint was written: training goes on at ",
                     place, within && shuffled && same_order
                                ? absl::StrCat(", and the order depends on the size: ", kTwice)
                                : ""));
  }
  if (!same_order && within) {
    continuation->told.emplace_back(
        "DATA_ORDER_CHANGED",
        absl::StrCat("training goes on at ", place, " of ", now.samples, " with ",
                     DescribeOrder(now), ", and this epoch was begun with ", DescribeOrder(before),
                     ": ", kTwice));
  }
}

// Returns the notice of changed stages by epochs; "" without a change. `begin`: the position of the
// next step. `former`: the plan without the change; empty: not known.
std::string TellOfSteps(const SamplingRecord& before, const SamplingRecord& now,
                        data::Position begin, const std::vector<PlannedStage>& former,
                        const std::vector<PlannedStage>& plan) {
  const int64_t total = TotalSteps(plan);
  const int64_t total_before = former.empty() ? total : TotalSteps(former);
  const int64_t scheduled = ScheduledSteps(plan);
  const int64_t scheduled_before = former.empty() ? scheduled : ScheduledSteps(former);
  if (!former.empty() && total == total_before && scheduled == scheduled_before) return "";
  const std::string takes =
      former.empty() ? absl::StrCat(now.global_batch, " samples; how many it took before is not "
                                                      "known, because an older program wrote the "
                                                      "checkpoint")
                     : Instead(" samples", now.global_batch, before.global_batch);
  return absl::StrCat("a step takes ", takes, "; an epoch has ", now.samples,
                      " (last: ", now.last, "); training goes on at epoch ", begin.epoch,
                      ", sample ", begin.cursor, ": after step ", now.step, ", ",
                      Instead(" steps", std::max<int64_t>(total - now.step, 0),
                              std::max<int64_t>(total_before - now.step, 0)),
                      " remain, ", Instead(" in all", total, total_before),
                      "; a schedule without total_steps ends with step ",
                      Instead("", scheduled, scheduled_before));
}

}  // namespace

SamplingRecord RecordOf(const Job& job, const data::Pace& pace, bool per_rank) {
  return {.samples = pace.epoch_size,
          .global_batch = pace.global_batch,
          .last = NameOf(pace.last, kLasts),
          .order = NameOf(job.batch.order, kOrders),
          .seed = job.seed,
          .per_rank = per_rank};
}

data::Timeline TimelineOf(const std::vector<SamplingRecord>& sampling) {
  std::vector<data::Timeline::Span> spans;
  for (const SamplingRecord& record : sampling) {
    spans.push_back(
        {record.step, PositionOf(record), PaceOf(record).value_or(data::Pace()), record.skipped});
  }
  return data::Timeline(std::move(spans));
}

Continuation Continue(const CheckpointSampling& past, const SessionSampling& present) {
  Continuation continuation{.sampling = History(past, present), .position = past.position};
  std::vector<SamplingRecord>& sampling = continuation.sampling;
  SamplingRecord own = present.sampling;
  const bool known = !sampling.empty();
  const SamplingRecord before = known ? sampling.back() : own;
  const bool same_pace = known && SamePace(before, own);
  if (same_pace && SameOrder(before, own)) return continuation;

  const data::Pace pace = *PaceOf(own);
  data::Position& position = continuation.position;
  if (known && !same_pace) position = PaceOf(before)->Begin(position);
  const auto former = known ? PlanStages(present.stages, TimelineOf(sampling), present.ended)
                            : std::vector<PlannedStage>();
  if (!known && past.step > 0) sampling.push_back(Unknown(past, own));
  if (known && before.step == past.step) sampling.pop_back();
  own.step = past.step;
  own.epoch = position.epoch;
  own.cursor = position.cursor;
  own.skipped = known && before.skipped && before.step == past.step;
  sampling.push_back(own);

  const data::Timeline timeline = TimelineOf(sampling);
  const auto plan = PlanStages(present.stages, timeline, present.ended);
  continuation.pass_due = known && PassDueAtChange(present.stages, plan, timeline);
  TellOfData(before, own, pace.Begin(position), &continuation);
  if (!CountsInEpochs(present.stages)) return continuation;
  const std::string steps = TellOfSteps(before, own, pace.Begin(position), former, plan);
  if (!steps.empty()) continuation.told.emplace_back("STEPS_PER_EPOCH_CHANGED", steps);
  return continuation;
}

}  // namespace muster::train
