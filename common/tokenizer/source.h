// The tokenizer of the tokens on which a model is trained.
#ifndef MUSTER_COMMON_TOKENIZER_SOURCE_H_
#define MUSTER_COMMON_TOKENIZER_SOURCE_H_

#include <string>

namespace muster::tokenizer {

struct Source {
  // The absolute path that the tokenizer.json had when the tokens were made. Empty: the tokenizer
  // is not known.
  std::string path;
  // The hash of the file's contents, as files::HashBytes computes it.
  std::string hash;

  bool known() const { return !path.empty(); }
  friend bool operator==(const Source&, const Source&) = default;
};

}  // namespace muster::tokenizer

#endif  // MUSTER_COMMON_TOKENIZER_SOURCE_H_
