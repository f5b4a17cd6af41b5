// Numbers and a fixture for the conformance tests. The sums of the numbers depend on the order of
// the additions. The fixture runs every implementation with every world size.
#ifndef MUSTER_WORKER_COMM_CONFORMANCE_H_
#define MUSTER_WORKER_COMM_CONFORMANCE_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "gtest/gtest.h"
#include "worker/comm/test_groups.h"

namespace muster::comm {

// The functions of `at`, with the device of the rank under test unless the options name a device.
inline at::TensorOptions OnTestDevice(at::TensorOptions options) {
  return options.has_device() ? options : options.device(TestDevice());
}
inline at::Tensor Empty(at::IntArrayRef sizes, at::TensorOptions options = {}) {
  return at::empty(sizes, OnTestDevice(options));
}
inline at::Tensor Full(at::IntArrayRef sizes, const at::Scalar& value,
                       at::TensorOptions options = {}) {
  return at::full(sizes, value, OnTestDevice(options));
}
inline at::Tensor Ones(at::IntArrayRef sizes, at::TensorOptions options = {}) {
  return at::ones(sizes, OnTestDevice(options));
}

// The contribution of rank `rank`: random numbers of many magnitudes. Their sum depends on the
// order of the additions.
template <typename T>
std::vector<T> Contribution(int rank, int64_t elements, int seed) {
  std::mt19937_64 random(1000 * seed + rank);
  std::vector<T> values(elements);
  for (T& value : values) {
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(random() >> 4);
    } else {
      value = std::ldexp(static_cast<T>(static_cast<int64_t>(random() >> 40)) - (1 << 23),
                         static_cast<int>(random() % 40) - 20);
    }
  }
  return values;
}

// The reference result, computed by one serial loop.
template <typename T>
std::vector<T> SerialSum(int world_size, int64_t elements, int seed, T divisor) {
  std::vector<T> sum = Contribution<T>(0, elements, seed);
  for (int rank = 1; rank < world_size; ++rank) {
    const std::vector<T> next = Contribution<T>(rank, elements, seed);
    for (int64_t i = 0; i < elements; ++i) sum[i] = sum[i] + next[i];
  }
  if (divisor != T{1}) {
    for (T& value : sum) value = value / divisor;
  }
  return sum;
}

// Part `part` of `parts` equal parts.
template <typename T>
std::vector<T> Part(const std::vector<T>& values, int part, int parts) {
  const size_t size = values.size() / parts;
  return {values.begin() + part * size, values.begin() + (part + 1) * size};
}

template <typename T>
at::Tensor ToTensor(const std::vector<T>& values) {
  const auto type = std::is_same_v<T, float>    ? at::kFloat
                    : std::is_same_v<T, double> ? at::kDouble
                                                : at::kLong;
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::TensorOptions(type));
  if (!values.empty()) {
    std::memcpy(tensor.mutable_data_ptr(), values.data(), values.size() * sizeof(T));
  }
  return tensor.to(TestDevice());
}

template <typename T>
bool SameBits(const at::Tensor& tensor, const std::vector<T>& values) {
  const at::Tensor here = tensor.cpu();
  return here.numel() == static_cast<int64_t>(values.size()) &&
         (values.empty() ||
          std::memcmp(here.const_data_ptr(), values.data(), values.size() * sizeof(T)) == 0);
}

class Conformance : public testing::TestWithParam<std::tuple<Implementation, int>> {
 protected:
  void SetUp() override {
    if (*WhyNot() != '\0') GTEST_SKIP() << WhyNot();
  }
  int world_size() const { return std::get<1>(GetParam()); }
  void Run(const std::function<void(Communicator& ranks)>& body) {
    RunRanks(std::get<0>(GetParam()), world_size(),
             [&body](std::unique_ptr<Communicator> ranks) { body(*ranks); });
  }

  // Expects INVALID_ARGUMENT with the rank and `text` in the message.
  static void ExpectRefused(const Communicator& ranks, std::unique_ptr<Work> work,
                            const std::string& text) {
    const absl::Status status = work->Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    const std::string prefix = "rank " + std::to_string(ranks.rank()) + ": ";
    EXPECT_EQ(std::string(status.message()).rfind(prefix, 0), 0) << status;
    EXPECT_NE(std::string(status.message()).find(text), std::string::npos)
        << status << "\nexpected: " << text;
  }
};

inline auto EveryGroup() { return testing::ValuesIn(GroupsToTest()); }

inline std::string GroupName(const testing::TestParamInfo<std::tuple<Implementation, int>>& info) {
  return std::string(Name(std::get<0>(info.param))) + std::to_string(std::get<1>(info.param));
}

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_CONFORMANCE_H_
