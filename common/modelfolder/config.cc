#include "common/modelfolder/config.h"

#include "nlohmann/json.hpp"

namespace muster::modelfolder {
namespace {

using Json = nlohmann::ordered_json;
using safetensors::DType;

Json Parse(const std::string& text) {
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

const char* TorchName(DType dtype) {
  if (dtype == DType::kBF16) return "bfloat16";
  return dtype == DType::kF16 ? "float16" : "float32";
}

}  // namespace

std::string FolderConfig(const std::string& config, const std::string& source, DType dtype) {
  Json result = Parse(config);
  if (!result.is_object()) return "";
  const Json first = Parse(source);
  const auto kind = [](const Json& json) {
    return json.is_object() && json.contains("model_type") ? json["model_type"] : Json();
  };
  if (!kind(first).is_null() && kind(first) == kind(result)) {
    for (const auto& [key, value] : first.items()) {
      // Its name before transformers 5.
      if (key == "torch_dtype") continue;
      if (!result.contains(key) || result[key].is_null()) result[key] = value;
    }
  }
  result["dtype"] = TorchName(dtype);
  return result.dump(2) + "\n";
}

}  // namespace muster::modelfolder
