#include "worker/train/reports/session_state.h"

namespace muster::train {
namespace {

constexpr size_t kKeptApplied = 256;

}  // namespace

void SessionState::Applied(int64_t command) {
  applied.emplace_back(command, step);
  if (applied.size() <= kKeptApplied) return;
  std::erase_if(failed, [&](const manifest::FailedCommand& oldest) {
    return oldest.number == applied.front().first;
  });
  applied.pop_front();
}

void SessionState::Describe(double jobs_rate, checkpoint::SavePoint* point) const {
  point->step = step;
  point->epoch = position.epoch;
  point->cursor = position.cursor;
  point->sampling = sampling;
  if (learning_rate != jobs_rate) point->steering.learning_rate = learning_rate;
  point->steering.applied.assign(applied.begin(), applied.end());
  point->steering.failed = failed;
  point->steering.validation_due = validation_due;
  point->steering.validations = validations;
}

void SessionState::ResumeFrom(const checkpoint::SavePoint& point) {
  step = point.step;
  position = {point.epoch, point.cursor};
  sampling = point.sampling;
  learning_rate = point.steering.learning_rate.value_or(learning_rate);
  applied.assign(point.steering.applied.begin(), point.steering.applied.end());
  failed = point.steering.failed;
  validation_due = point.steering.validation_due;
  validations = point.steering.validations;
}

}  // namespace muster::train
