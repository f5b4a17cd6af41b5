#include "worker/models/language/rotary.h"

#include <numbers>

#include "ATen/core/IListRef.h"
#include "ATen/ops/addcmul.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/pow.h"
#include "ATen/ops/where.h"

namespace muster::models {
namespace {

using huggingface::LinearScaling;
using huggingface::Llama3Scaling;
using huggingface::RotaryFrequencies;

at::Tensor Turned(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines) {
  // A roll by half a head puts each number at the place of its partner.
  return at::addcmul(x.mul(cosines), x.roll(x.size(3) / 2, 3), sines).to(x.scalar_type());
}

// The operations, their order and float32 are those of transformers: float64 would give other
// angles at distant positions.
at::Tensor Scaled(const at::Tensor& frequencies, const Llama3Scaling& scaling) {
  const at::Tensor turn = frequencies.reciprocal().mul(2 * std::numbers::pi);  // in positions
  const double longest = scaling.original_context / scaling.low_frequency;
  const double shortest = scaling.original_context / scaling.high_frequency;
  const at::Tensor low = turn.gt(longest);
  const at::Tensor scaled = at::where(low, frequencies.div(scaling.factor), frequencies);
  const at::Tensor smooth = turn.reciprocal()
                                .mul(scaling.original_context)
                                .sub(scaling.low_frequency)
                                .div(scaling.high_frequency - scaling.low_frequency);
  const at::Tensor between =
      smooth.neg().add(1).mul(scaled).div(scaling.factor).add(smooth.mul(scaled));
  return at::where(turn.lt(shortest).logical_or(low), scaled, between);
}

at::Tensor FrequenciesOf(int64_t head, const RotaryFrequencies& options) {
  const at::Tensor exponents = at::arange(0, head, 2, at::kFloat).div(head);
  const at::Tensor frequencies = at::pow(options.theta, exponents).reciprocal();
  if (const auto* linear = std::get_if<LinearScaling>(&options.scaling)) {
    return frequencies.div(linear->factor);
  }
  const auto* llama3 = std::get_if<Llama3Scaling>(&options.scaling);
  return llama3 == nullptr ? frequencies : Scaled(frequencies, *llama3);
}

}  // namespace

Rotary::Rotary(int64_t context, int64_t head, const RotaryFrequencies& frequencies) {
  const at::Tensor angles =
      at::arange(context, at::kFloat).unsqueeze(1).mul(FrequenciesOf(head, frequencies));
  const at::Tensor sines = angles.sin();
  cosines_ = at::cat({angles.cos(), angles.cos()}, 1).unsqueeze(1);
  sines_ = at::cat({sines.neg(), sines}, 1).unsqueeze(1);
}

at::Tensor Rotary::Turn(const at::Tensor& x) {
  MoveTo(x.device());
  const int64_t length = x.size(1);
  return Turned(x, cosines_.narrow(0, 0, length), sines_.narrow(0, 0, length));
}

at::Tensor Rotary::TurnAt(const at::Tensor& positions, const at::Tensor& x) {
  MoveTo(x.device());
  const auto at_positions = [&](const at::Tensor& table) {
    return table.index_select(0, positions.flatten())
        .view({positions.size(0), positions.size(1), 1, x.size(3)});
  };
  return Turned(x, at_positions(cosines_), at_positions(sines_));
}

void Rotary::MoveTo(c10::Device device) {
  cosines_ = cosines_.to(device);
  sines_ = sines_.to(device);
}

}  // namespace muster::models
