// What the first bytes of a file say about its kind. With it an error names what lies in the place
// of a file: a git-lfs pointer, a web page, a packed file.
#ifndef MUSTER_COMMON_FILEKIND_FILE_KIND_H_
#define MUSTER_COMMON_FILEKIND_FILE_KIND_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace muster::filekind {

enum class Kind {
  kUnknown,
  kGitLfsPointer,
  kGitAnnexPointer,
  kWebPage,
  kXml,
  kGzip,
  kZstandard,
  kXz,
  kBzip2,
  kSevenZip,
  kTar,
  kZip,
  kNpz,
  kTorchArchive,  // of torch.save or torch.jit.save
  kPickle,
  kNpy,
  kSafetensors,
  kLlmcTokens,    // of llm.c: a header of 1024 bytes, then uint16 tokens
  kLlmcTokens32,  // the same with uint32 tokens
  kMegatronIndex,
  kParquet,
  kArrow,
  kHdf5,
  kGguf,
  kElf,
  kText,
};

// What a reader expects.
enum class Wanted {
  kTokens,
  kNpy,
  kSafetensorsRows,
  kIdx,
  kWeights,
  kTorchScript,
  kOptimizerState,
  kPlugin,
  kText,  // to make tokens of it: any file but a pointer to one
  kJson,
  kJobFile,
  kAnyInput,  // of any of these kinds
};

// The first bytes of a file that KindOf looks at, at most.
inline constexpr size_t kLook = 4096;

// The kind of the file that begins so; all of the file, if it is shorter than kLook. Pure, and has
// no false alarm for tokens, pixels or other numbers: but for kText and kPickle, at least 32 bits
// of the beginning must be those of the kind.
Kind KindOf(absl::string_view beginning);

// Why the file is certainly not what is wanted, and what to do about it: "expected a safetensors
// file, found a git-lfs pointer (a text in place of a file of 548105171 bytes): 'git lfs pull'
// fetches the file". Nothing if the beginning may be that of what is wanted, or tells nothing.
// Pure.
std::optional<std::string> Mismatch(absl::string_view beginning, Wanted wanted);
std::optional<std::string> Mismatch(const uint8_t* data, size_t size, Wanted wanted);

// INVALID_ARGUMENT with the path and the mismatch, if there is one.
absl::Status CheckKind(const std::string& path, const uint8_t* data, size_t size, Wanted wanted);

// What is only likely of tokens: text, which is no Mismatch, because token numbers could be the
// same bytes. Nothing for short files and for those that repeat few
// bytes. Pure.
std::optional<std::string> TextInPlaceOfTokens(absl::string_view beginning);

}  // namespace muster::filekind

#endif  // MUSTER_COMMON_FILEKIND_FILE_KIND_H_
