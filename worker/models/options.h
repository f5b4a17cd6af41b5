// Reads the options of a model from JSON and reports everything wrong at once.
#ifndef MUSTER_WORKER_MODELS_OPTIONS_H_
#define MUSTER_WORKER_MODELS_OPTIONS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/problems/problems.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::models {

// Ask for every option once, then call Finish: it knows what was not asked for. A value that is
// missing or wrong is noted and 1 (or the default) returned, so that reading can go on.
class OptionReader {
 public:
  // `json` must outlive the reader.
  OptionReader(std::string kind, const nlohmann::json& json);

  // An integer from 1 on; without a default it is required.
  int64_t Size(const std::string& key, std::optional<int64_t> fallback = std::nullopt);
  // A list of integers from 1 on; empty where there is none: protobuf's JSON leaves out empty lists.
  std::vector<int64_t> Sizes(const std::string& key);
  // A finite number above 0.
  double Positive(const std::string& key, double fallback);
  // A number in [0, 1).
  double Probability(const std::string& key, double fallback);
  bool Flag(const std::string& key, bool fallback);
  // A text that is not empty, required.
  std::string Text(const std::string& key);
  // An object of texts; empty where there is none.
  std::map<std::string, std::string> Texts(const std::string& key);
  bool Has(const std::string& key) { return Find(key) != nullptr; }

  // Notes a problem between options.
  void Problem(const std::string& problem) { problems_.Add(problem); }
  bool ok() const { return problems_.count() == 0; }

  // INVALID_ARGUMENT with all problems (capped at 3), unknown keys among them.
  absl::Status Finish();

 private:
  const nlohmann::json* Find(const std::string& key);
  void Wrong(const std::string& key, const std::string& allowed, const nlohmann::json& found);

  const std::string kind_;
  const nlohmann::json& json_;
  std::vector<std::string> asked_;
  Problems problems_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_OPTIONS_H_
