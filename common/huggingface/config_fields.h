// The keys of a config.json of transformers, for the reader of one kind of model. Each function
// adds a problem if the value has another type or lies outside of its bounds, and returns the
// default in its place. A key with the value null counts as absent, as in transformers.
#ifndef MUSTER_COMMON_HUGGINGFACE_CONFIG_FIELDS_H_
#define MUSTER_COMMON_HUGGINGFACE_CONFIG_FIELDS_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>

#include "common/problems/problems.h"
#include "nlohmann/json.hpp"

namespace muster::huggingface {

// The bounds of the job file (job_spec.proto).
constexpr int64_t kMostTokens = 2147483647;
constexpr int64_t kMostNumbers = 16777216;
constexpr int64_t kMostInner = 67108864;
constexpr int64_t kMostLayers = 100000;

// Returns whether `found`, a value of config.json, is this activation function, or another name
// that transformers has for it.
bool IsActivation(const std::string& expected, const nlohmann::json& found);

class ConfigFields {
 public:
  // object: a JSON object. path: its place in the file ("rope_scaling."), or "". Both references
  // must outlive this object.
  ConfigFields(const nlohmann::json& object, std::string path, Problems* problems)
      : object_(object), path_(std::move(path)), problems_(problems) {}

  // Returns null if the key is absent. The key counts as known from then on.
  const nlohmann::json* Find(const std::string& key);
  // True if the key is there with the value null.
  bool HasNull(const std::string& key) const;

  // Without `otherwise` the key must be there.
  int64_t Integer(const std::string& key, std::optional<int64_t> otherwise, int64_t least,
                  int64_t most);
  // A finite number above 0.
  double Positive(const std::string& key, std::optional<double> otherwise);
  bool Flag(const std::string& key, bool otherwise);
  std::string Text(const std::string& key, const std::string& otherwise);

  // Checks that the key is absent or has one of these values.
  void OneOf(const std::string& key, std::initializer_list<nlohmann::json> allowed);
  // These keys say nothing about what the model computes.
  void Ignore(std::initializer_list<const char*> keys);
  // Reads the keys that any language model may have: refuses quantized weights, Python code of the
  // model's own, and another architecture. The other keys are about texts, programs and
  // transformers itself.
  void ReadCommon(const std::string& architecture);
  // Returns the tokens of a sample: `asked`, or all positions of the model if it is 0. `key`: of
  // the number of positions.
  int64_t Context(const std::string& key, int64_t asked);
  // Adds a problem for each key that is not known so far, unless it is null or false.
  void RefuseOthers();

  void Refuse(const std::string& key, const std::string& why);

 private:
  const nlohmann::json& object_;
  const std::string path_;
  Problems* const problems_;
  std::set<std::string> known_;
};

}  // namespace muster::huggingface

#endif  // MUSTER_COMMON_HUGGINGFACE_CONFIG_FIELDS_H_
