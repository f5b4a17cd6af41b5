#include "worker/parallel/test_model.h"

#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "ATen/TensorOperators.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/zeros.h"
#include "ATen/ops/zeros_like.h"
#include "worker/comm/local/local_group.h"

namespace muster::parallel {
namespace {

template <typename T>
void AddTo(const at::Tensor& sum, const at::Tensor& more) {
  T* to = static_cast<T*>(sum.mutable_data_ptr());
  for (int64_t i = 0; i < sum.numel(); ++i) to[i] += more.const_data_ptr<T>()[i];
}

template <typename T>
void DivideBy(const at::Tensor& sum, double divisor) {
  T* values = static_cast<T*>(sum.mutable_data_ptr());
  for (int64_t i = 0; i < sum.numel(); ++i) values[i] /= static_cast<T>(divisor);
}

}  // namespace

at::Tensor Numbers(at::IntArrayRef sizes, uint64_t seed) {
  at::Tensor tensor = at::empty(sizes);
  uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    tensor.data_ptr<float>()[i] =
        std::ldexp(static_cast<float>(static_cast<int32_t>(state >> 32)) / (1u << 31),
                   static_cast<int>(state >> 20 & 7) - 4);
  }
  return tensor;
}

std::vector<models::Parameter> MakeParameters() {
  std::vector<models::Parameter> parameters = {{"first", Numbers({7, 13}, 1)},
                                               {"bias", Numbers({13}, 2)},
                                               {"shared", Numbers({13, 13}, 3)},
                                               {"unused", Numbers({5}, 4)},
                                               {"only_first_micro_batch", Numbers({13}, 5)},
                                               {"last", Numbers({13, 3}, 6)},
                                               {"empty", at::empty({0})},
                                               {"wide", Numbers({3, 11}, 7).to(at::kDouble)}};
  for (auto& parameter : parameters) parameter.tensor.requires_grad_(true);
  parameters.push_back({"frozen", Numbers({13}, 8)});
  parameters.push_back({"table", at::full({4}, 7, at::TensorOptions(at::kLong))});
  return parameters;
}

at::Tensor Loss(const std::vector<models::Parameter>& p, int rank, int64_t step, int micro_batch) {
  const at::Tensor x = Numbers({4, 7}, 1000 * step + 100 * micro_batch + rank);
  at::Tensor h = (x.matmul(p[0].tensor) + p[1].tensor).tanh();
  h = h.matmul(p[2].tensor).tanh().matmul(p[2].tensor) * p[8].tensor;
  if (micro_batch == 0) h = h * p[4].tensor;
  h = h.matmul(p[5].tensor);
  return h.square().mean() + p[6].tensor.sum() +
         h.to(at::kDouble).matmul(p[7].tensor).sin().sum().to(at::kFloat);
}

std::vector<at::Tensor> ReferenceGradients(const std::vector<models::Parameter>& parameters,
                                           int world_size, int64_t step, int micro_batches,
                                           double divisor) {
  std::vector<at::Tensor> sums(parameters.size());
  for (int rank = 0; rank < world_size; ++rank) {
    std::vector<models::Parameter> own;
    for (const auto& [name, tensor] : parameters) {
      own.push_back({name, tensor.detach().clone().requires_grad_(tensor.requires_grad())});
    }
    for (int m = 0; m < micro_batches; ++m) Loss(own, rank, step, m).backward();
    for (size_t i = 0; i < own.size(); ++i) {
      if (!own[i].tensor.requires_grad()) continue;
      // A rank that did not use the parameter adds -0.0 (unused_pieces.h).
      const at::Tensor gradient = own[i].tensor.grad().defined()
                                      ? own[i].tensor.grad()
                                      : at::zeros_like(own[i].tensor.detach()).neg();
      if (rank == 0) {
        sums[i] = gradient.clone();
      } else if (gradient.scalar_type() == at::kDouble) {
        AddTo<double>(sums[i], gradient);
      } else {
        AddTo<float>(sums[i], gradient);
      }
    }
  }
  for (const at::Tensor& sum : sums) {
    if (!sum.defined()) continue;
    if (sum.scalar_type() == at::kDouble) {
      DivideBy<double>(sum, divisor);
    } else {
      DivideBy<float>(sum, divisor);
    }
  }
  return sums;
}

std::vector<models::Buffer> MakeBuffers() {
  return {{"mean", at::zeros({3})}, {"count", at::zeros({}, at::kLong)}, {"empty", at::zeros({0})}};
}

void Count(const std::vector<models::Buffer>& buffers, int rank) {
  at::Tensor mean = buffers[0].tensor;
  at::Tensor count = buffers[1].tensor;
  mean.mul_(0.5).add_(rank + 1);
  count.add_((int64_t{1} << 40) + rank);
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.sizes() == b.sizes() &&
         a.scalar_type() == b.scalar_type() &&
         (a.numel() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

void RunRanks(int world_size, const std::function<void(comm::Communicator& ranks)>& body) {
  auto ranks = comm::LocalGroup::Create(world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      body(*ranks[rank]);
      ranks[rank].reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace muster::parallel
