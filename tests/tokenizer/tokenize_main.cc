// muster-tokenize: prints the tokens of texts and the texts of the tokens, as a tokenizer.json
// makes them. The tests use it.
#include <iostream>
#include <string>
#include <vector>

#include "common/status/status.h"
#include "common/tokenizer/hugging_face/tokenizer.h"
#include "nlohmann/json.hpp"

namespace muster {
namespace {

// Reads a JSON text, or a list of token ids, from each line of stdin. Writes {"tokens": [..],
// "text": ".."} for each, or {"error": ".."}.
absl::Status Run(const std::string& path) {
  ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::Tokenizer::Open(path));
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto given = nlohmann::json::parse(line);
    std::vector<int64_t> ids;
    if (given.is_array()) {
      ids = given.get<std::vector<int64_t>>();
    } else {
      const auto tokens =
          tokenizer.Encode(given.get<std::string>(), tokenizer::Tokenizer::Around::kAdded);
      if (!tokens.ok()) {
        std::cout << nlohmann::json{{"error", std::string(tokens.status().message())}} << "\n";
        continue;
      }
      ids.assign(tokens->begin(), tokens->end());
    }
    std::cout << nlohmann::json{{"tokens", ids}, {"text", tokenizer.Decode(ids)}} << "\n";
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: muster-tokenize tokenizer.json <texts\n";
    return 2;
  }
  const absl::Status status = muster::Run(argv[1]);
  if (!status.ok()) std::cerr << "muster-tokenize: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
