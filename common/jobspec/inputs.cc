#include "common/jobspec/inputs.h"

#include "common/jobspec/fields.h"
#include "common/jobspec/rules.h"

namespace muster::jobspec {

std::vector<std::pair<std::string, std::string>> InputFiles(const v1::JobSpec& spec) {
  std::vector<std::pair<std::string, std::string>> inputs;
  ForEachValue(spec, [&](const FieldValue& value) {
    if (RuleOf(*value.field).text() == v1::FieldRule::INPUT_PATH) {
      inputs.emplace_back(value.path, value.String());
    }
  });
  return inputs;
}

}  // namespace muster::jobspec
