// Optimizers over pieces of parameters, as in a sharded strategy, give the same bits as over whole
// parameters.
#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "gtest/gtest.h"
#include "worker/optim/factories.h"

namespace muster::optim {
namespace {

constexpr int64_t kAlignment = 16;

struct Kind {
  const char* name;
  std::function<absl::StatusOr<std::unique_ptr<Optimizer>>(std::vector<OptimizedParameter>)> create;
};

const Kind kKinds[] = {
    {"AdamW",
     [](auto parameters) { return CreateAdamW(std::move(parameters), {.weight_decay = 0.1}); }},
    {"AdamWWithoutDecay",
     [](auto parameters) {
       return CreateAdamW(std::move(parameters), {.eps = 1e-5, .weight_decay = 0});
     }},
    {"Adam",
     [](auto parameters) { return CreateAdam(std::move(parameters), {.weight_decay = 0.1}); }},
    {"Sgd",
     [](auto parameters) { return CreateSgd(std::move(parameters), {.weight_decay = 0.1}); }},
    {"Momentum",
     [](auto parameters) {
       return CreateSgd(std::move(parameters), {.momentum = 0.9, .weight_decay = 0.1});
     }},
    {"Nesterov",
     [](auto parameters) {
       return CreateSgd(std::move(parameters),
                        {.momentum = 0.9, .weight_decay = 0.1, .nesterov = true});
     }},
    {"Lion",
     [](auto parameters) { return CreateLion(std::move(parameters), {.weight_decay = 0.1}); }},
    {"Adadelta",
     [](auto parameters) { return CreateAdadelta(std::move(parameters), {.weight_decay = 0.1}); }}};

class Pieces : public testing::TestWithParam<int> {
 protected:
  const Kind& kind() const { return kKinds[GetParam()]; }

  at::Tensor Numbers(int64_t elements, at::ScalarType type) {
    const at::Tensor numbers = at::empty({elements});
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < elements; ++i) numbers.data_ptr<float>()[i] = normal(random_);
    return numbers.to(type);
  }

  // The beginnings of the pieces of a parameter: multiples of 16, `count` at most, and the end.
  std::vector<int64_t> Cuts(int64_t elements, int64_t count) {
    std::vector<int64_t> cuts = {0, elements};
    for (int64_t i = 1; i < count && elements > kAlignment; ++i) {
      cuts.push_back(static_cast<int64_t>(random_() % (elements / kAlignment)) * kAlignment);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    return cuts;
  }

  std::mt19937_64 random_{7};
};

INSTANTIATE_TEST_SUITE_P(All, Pieces, testing::Range<int>(0, std::size(kKinds)),
                         [](const auto& info) { return kKinds[info.param].name; });

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == b.numel() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

TEST_P(Pieces, CutAtMultiplesOf16AreSteppedBucketByBucketToTheBitsOfTheWhole) {
  constexpr int kSteps = 3;
  constexpr size_t kBuckets[] = {2, 0, 3, 1};  // in the order in which they are stepped
  for (int world_size = 1; world_size <= 8; ++world_size) {
    struct Whole {
      at::Tensor tensor;
      at::Tensor flat;  // the same values, stepped in pieces
      std::vector<int64_t> cuts;
    };
    std::vector<Whole> wholes;
    std::vector<OptimizedParameter> together;
    std::vector<std::vector<OptimizedParameter>> of_rank(world_size);
    std::vector<std::vector<std::pair<size_t, int64_t>>> places(
        world_size);  // parameter, begin of the piece
    for (const int64_t elements : {1, 15, 16, 17, 100, 1000, 4099}) {
      for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
        const size_t index = wholes.size();
        const std::string name = "p" + std::to_string(index);
        const at::Tensor tensor = Numbers(elements, type);
        wholes.push_back({tensor, tensor.clone(), Cuts(elements, world_size)});
        const double lr_scale = index % 3 == 0 ? 0.5 : 1;
        together.push_back({name, tensor, std::nullopt, lr_scale});
        const auto& cuts = wholes.back().cuts;
        for (size_t i = 0; i + 1 < cuts.size(); ++i) {
          const at::Tensor piece = wholes.back().flat.narrow(0, cuts[i], cuts[i + 1] - cuts[i]);
          const size_t rank = (i + index) % world_size;
          of_rank[rank].push_back({name, piece, std::nullopt, lr_scale});
          of_rank[rank].back().bucket = (index + i) % std::size(kBuckets);
          places[rank].push_back({index, cuts[i]});
        }
      }
    }
    const auto optimizer = kind().create(together);
    ASSERT_TRUE(optimizer.ok()) << optimizer.status();
    std::vector<std::unique_ptr<Optimizer>> optimizers;
    for (const auto& pieces : of_rank) {
      auto one = kind().create(pieces);
      ASSERT_TRUE(one.ok()) << one.status();
      optimizers.push_back(*std::move(one));
    }
    for (int step = 0; step < kSteps; ++step) {
      std::vector<at::Tensor> gradients;
      for (size_t k = 0; k < wholes.size(); ++k) {
        gradients.push_back(Numbers(wholes[k].tensor.numel(), wholes[k].tensor.scalar_type()));
        together[k].tensor.mutable_grad() = gradients.back();
      }
      ASSERT_TRUE((*optimizer)->Step(0.01).ok());
      for (int rank = 0; rank < world_size; ++rank) {
        for (size_t i = 0; i < of_rank[rank].size(); ++i) {
          const auto& [index, begin] = places[rank][i];
          of_rank[rank][i].tensor.mutable_grad() =
              gradients[index].narrow(0, begin, of_rank[rank][i].tensor.numel());
        }
        for (const size_t bucket : kBuckets) {
          ASSERT_TRUE(optimizers[rank]->StepBucket(bucket, 0.01).ok());
        }
      }
    }
    for (size_t k = 0; k < wholes.size(); ++k) {
      EXPECT_TRUE(SameBits(wholes[k].tensor, wholes[k].flat))
          << wholes[k].tensor.numel() << " elements on " << world_size << " ranks";
    }
    const auto state = (*optimizer)->State();
    const size_t slots = state.size() / wholes.size();
    for (int rank = 0; rank < world_size; ++rank) {
      const auto own = optimizers[rank]->State();
      ASSERT_EQ(own.size(), slots * of_rank[rank].size());
      for (size_t i = 0; i < own.size(); ++i) {
        const auto& [index, begin] = places[rank][i / slots];
        at::Tensor whole = state[index * slots + i % slots].tensor;
        if (whole.dim() > 0) whole = whole.narrow(0, begin, own[i].tensor.numel());
        EXPECT_TRUE(SameBits(own[i].tensor, whole)) << own[i].slot << " of " << own[i].parameter;
      }
    }
  }
}

}  // namespace
}  // namespace muster::optim
