#include "coordinator/web/latencies.h"

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace muster::web {
namespace {

std::string TextOf(const Latencies& latencies) {
  Exposition out;
  latencies.AddTo(&out);
  return prometheus::TextSerializer().Serialize(std::move(out).Take());
}

bool Has(const std::string& text, const std::string& line) {
  return text.find("\n" + line + "\n") != std::string::npos;
}

TEST(LatenciesTest, TellsOfBothEvenIfThereWereNone) {
  const std::string text = TextOf(Latencies());
  EXPECT_TRUE(Has(text, "# TYPE muster_rpc_duration_seconds histogram")) << text;
  EXPECT_TRUE(Has(text, "# TYPE muster_store_duration_seconds histogram")) << text;
}

TEST(LatenciesTest, CountsCallsByMethodAndCode) {
  Latencies latencies;
  latencies.CallEnded({.method = "/a.B/C", .duration = absl::Milliseconds(2)});
  latencies.CallEnded({.method = "/a.B/C", .duration = absl::Seconds(20)});
  latencies.CallEnded(
      {.method = "/a.B/C", .code = absl::StatusCode::kNotFound, .duration = absl::Milliseconds(2)});
  latencies.CallEnded({.method = "/a.B/D", .duration = absl::Milliseconds(2)});
  const std::string text = TextOf(latencies);
  const std::string of_c = "method=\"a.B/C\",code=\"OK\"";
  EXPECT_TRUE(Has(text, "muster_rpc_duration_seconds_count{" + of_c + "} 2")) << text;
  EXPECT_TRUE(Has(text, "muster_rpc_duration_seconds_sum{" + of_c + "} 20.002")) << text;
  EXPECT_TRUE(Has(text, "muster_rpc_duration_seconds_bucket{" + of_c + ",le=\"0.001\"} 0")) << text;
  EXPECT_TRUE(Has(text, "muster_rpc_duration_seconds_bucket{" + of_c + ",le=\"10\"} 1")) << text;
  EXPECT_TRUE(Has(text, "muster_rpc_duration_seconds_bucket{" + of_c + ",le=\"+Inf\"} 2")) << text;
  EXPECT_TRUE(Has(text, "muster_rpc_duration_seconds_count{method=\"a.B/C\",code=\"NOT_FOUND\"} 1"))
      << text;
  EXPECT_TRUE(Has(text, "muster_rpc_duration_seconds_count{method=\"a.B/D\",code=\"OK\"} 1"))
      << text;
}

TEST(LatenciesTest, CountsFromManyThreads) {
  Latencies latencies;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&latencies] {
      for (int j = 0; j < 1000; ++j) {
        latencies.StoreAccessed(store::TimedStore::Access::kCommit, absl::Milliseconds(1));
        latencies.CallEnded({.method = "/a.B/C", .duration = absl::Milliseconds(1)});
        if (j % 100 == 0) TextOf(latencies);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = TextOf(latencies);
  EXPECT_TRUE(Has(text, "muster_store_duration_seconds_count{access=\"commit\"} 4000")) << text;
  EXPECT_TRUE(Has(text, "muster_rpc_duration_seconds_count{method=\"a.B/C\",code=\"OK\"} 4000"))
      << text;
}

}  // namespace
}  // namespace muster::web
