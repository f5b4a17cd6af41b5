// The kind of a file, from its first bytes. Errors name the kind that was found instead of the
// expected kind: a git-lfs pointer, a web page, a packed file.
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

// The kind of file that a reader expects.
enum class Wanted {
  kTokens,
  kNpy,
  kSafetensorsRows,
  kIdx,
  kWeights,
  kTorchScript,
  kOptimizerState,
  kPlugin,
  kText,  // any file but a pointer to one, to make tokens of
  kJson,
  kJobFile,
  kAnyInput,  // of any of these kinds
};

// The largest number of first bytes that KindOf looks at.
inline constexpr size_t kLook = 4096;

// Returns the kind of a file from its beginning: kLook bytes, or all of a shorter file. Pure. Has
// no false alarm for tokens, pixels or other numbers: at least 32 bits must be those of the kind,
// except for kText and kPickle.
Kind KindOf(absl::string_view beginning);

// Returns why the file is certainly not of the wanted kind, and what to do: "expected a safetensors
// file, found a git-lfs pointer (a text in place of a file of 548105171 bytes): 'git lfs pull'
// fetches the file". Returns nothing if the file may be of the wanted kind. Pure.
std::optional<std::string> Mismatch(absl::string_view beginning, Wanted wanted);
std::optional<std::string> Mismatch(const uint8_t* data, size_t size, Wanted wanted);

// INVALID_ARGUMENT with the path and the mismatch, if there is one.
absl::Status CheckKind(const std::string& path, const uint8_t* data, size_t size, Wanted wanted);

// Returns a doubt about tokens: the bytes look like text. A doubt is not a Mismatch, because token
// numbers could be the same bytes. Returns nothing for short files and for files that repeat few
// bytes. Pure.
std::optional<std::string> TextInPlaceOfTokens(absl::string_view beginning);

}  // namespace muster::filekind

#endif  // MUSTER_COMMON_FILEKIND_FILE_KIND_H_
