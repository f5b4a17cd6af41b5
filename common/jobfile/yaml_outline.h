// What a YAML text is like before its tree is made: how large it is with its aliases, where a
// second document begins, and which quote has no end.
#ifndef MUSTER_COMMON_JOBFILE_YAML_OUTLINE_H_
#define MUSTER_COMMON_JOBFILE_YAML_OUTLINE_H_

#include <cstddef>
#include <string>

namespace muster::jobfile {

struct YamlProblem {
  std::string message;  // empty: there is none
  int line = 0;         // 1-based; 0: unknown
};

// The first problem that makes a tree impossible or too large:
// - the text is not YAML. A quote without an end is named where it begins, and so is one that ends
//   in another line just before something that cannot follow it;
// - it is more than one document;
// - an alias (*name) stands for something that it is a part of, or the texts and the parts of the
//   document, those of aliases once for each alias, take more than `most` bytes. yaml-cpp keeps one
//   copy of them, but who reads the tree has one for each.
// `text`: UTF-8. Time and memory are linear in it.
YamlProblem FindYamlProblem(const std::string& text, size_t most);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_YAML_OUTLINE_H_
