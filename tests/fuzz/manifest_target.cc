#include <string>

#include "common/files/hash.h"
#include "common/manifest/manifest.h"
#include "tests/fuzz/target.h"

using muster::fuzz::Require;

namespace {

// Returns the text with the right hash in place of its own, because a fuzzer cannot guess the hash.
std::string WithRightHash(std::string text) {
  const std::string member = "\"manifest_xxh3_128\": \"";
  const size_t at = text.find(member);
  constexpr size_t kDigits = 32;
  if (at == std::string::npos || text.size() < at + member.size() + kDigits) return text;
  const size_t digits = at + member.size();
  text.replace(digits, kDigits, kDigits, '0');
  return text.replace(digits, kDigits, muster::files::HashBytes(text.data(), text.size()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text = WithRightHash(std::string(reinterpret_cast<const char*>(data), size));
  const auto manifest = muster::manifest::Parse(text, "checkpoints");
  if (!manifest.ok() || !muster::manifest::CheckComplete(*manifest).ok()) return 0;
  for (const auto& piece : manifest->pieces) {
    Require(0 <= piece.begin && piece.begin <= piece.end, "a piece has a begin and an end");
    uint64_t in = 0;
    for (const auto& file : manifest->files) in += file.name == piece.file;
    Require(in == 1, "a piece lies in one file");
  }
  if (!manifest->optimizer.kinds.empty()) {
    for (const auto& parameter : manifest->parameters) {
      Require(parameter.group >= 0 &&
                  static_cast<size_t>(parameter.group) < manifest->optimizer.kinds.size(),
              "a parameter's group has a kind of optimizer");
    }
  }
  for (const auto& file : manifest->files) {
    Require(file.name.find('/') == std::string::npos, "a file lies in the checkpoint's folder");
  }
  return 0;
}
