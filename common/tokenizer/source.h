// Which tokenizer made the tokens on which a model is trained.
#ifndef MUSTER_COMMON_TOKENIZER_SOURCE_H_
#define MUSTER_COMMON_TOKENIZER_SOURCE_H_

#include <string>

namespace muster::tokenizer {

struct Source {
  // The tokenizer.json, absolute, where it was when the tokens were made. Empty: it is not known
  // which tokenizer it was.
  std::string path;
  // Of the file's contents, as files::HashBytes.
  std::string hash;

  bool known() const { return !path.empty(); }
  friend bool operator==(const Source&, const Source&) = default;
};

}  // namespace muster::tokenizer

#endif  // MUSTER_COMMON_TOKENIZER_SOURCE_H_
