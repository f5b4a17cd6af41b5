#include "common/filekind/file_kind.h"

#include <algorithm>
#include <array>
#include <bitset>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/utf8/utf8.h"

namespace muster::filekind {
namespace {

using absl::string_view;

uint8_t Byte(string_view text, size_t at) { return static_cast<uint8_t>(text[at]); }

// The number at `at`; 0 beyond the end.
uint64_t Number(string_view text, size_t at, size_t bytes) {
  uint64_t value = 0;
  if (at + bytes > text.size()) return 0;
  for (size_t i = 0; i < bytes; ++i) value |= uint64_t{Byte(text, at + i)} << (8 * i);
  return value;
}

struct Magic {
  Kind kind;
  string_view bytes;
};
constexpr Magic kMagics[] = {
    {Kind::kGitLfsPointer, "version https://git-lfs.github.com/spec/"},
    {Kind::kGitAnnexPointer, "/annex/objects/"},
    {Kind::kXml, "<?xml "},
    {Kind::kZstandard, "\x28\xb5\x2f\xfd"},
    {Kind::kXz, string_view("\xfd\x37zXZ\0", 6)},
    {Kind::kSevenZip, "7z\xbc\xaf\x27\x1c"},
    {Kind::kNpy, "\x93NUMPY"},
    {Kind::kMegatronIndex, string_view("MMIDIDX\0\0", 9)},
    {Kind::kParquet, "PAR1"},
    {Kind::kArrow, "ARROW1"},
    {Kind::kHdf5, "\x89HDF\r\n\x1a\n"},
    {Kind::kGguf, "GGUF"},
    {Kind::kElf, "\x7f" "ELF"},
    // The format of torch.save before PyTorch 1.6.
    {Kind::kPickle, string_view("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14)},
};

bool IsGzip(string_view text) {
  if (text.size() < 10 || !absl::StartsWith(text, "\x1f\x8b\x08")) return false;
  const uint8_t flags = Byte(text, 3), extra = Byte(text, 8), system = Byte(text, 9);
  return flags < 0x20 && (extra == 0 || extra == 2 || extra == 4) && (system < 14 || system == 255);
}

bool IsBzip2(string_view text) {
  return text.size() >= 10 && absl::StartsWith(text, "BZh") && text[3] >= '1' && text[3] <= '9' &&
         text.substr(4, 6) == "\x31\x41\x59\x26\x53\x59";
}

// The kind of a ZIP archive; kUnknown if `text` is not a ZIP archive.
Kind ZipKind(string_view text) {
  constexpr size_t kHeader = 30;
  if (text.size() < kHeader || !absl::StartsWith(text, "PK\x03\x04")) return Kind::kUnknown;
  const string_view name = text.substr(kHeader, Number(text, 26, 2));
  if (absl::EndsWith(name, ".npy")) return Kind::kNpz;
  const bool torch = absl::StrContains(name, "/data.pkl") || absl::StrContains(name, "/version") ||
                     absl::StrContains(name, "/byteorder") ||
                     absl::StrContains(name, "/.format_version");
  return torch ? Kind::kTorchArchive : Kind::kZip;
}

bool IsPickle(string_view text) {
  if (text.size() < 4 || Byte(text, 0) != 0x80) return false;
  const uint8_t protocol = Byte(text, 1);
  // Protocols 4 and 5 have a frame with its length of 8 bytes.
  return (protocol == 4 || protocol == 5) && text.size() >= 11 && Byte(text, 2) == 0x95 &&
         Number(text, 7, 4) == 0;
}

// Returns whether the text is a pickle of protocol 2 or 3. Too few bytes distinguish it from token
// numbers.
bool IsOldPickle(string_view text) {
  constexpr string_view kFirstOperations = "}](cXUKJM)NqG\x8a\x85";
  return text.size() >= 3 && Byte(text, 0) == 0x80 && (text[1] == 2 || text[1] == 3) &&
         absl::StrContains(kFirstOperations, text[2]);
}

bool IsSafetensors(string_view text) {
  const uint64_t length = Number(text, 0, 8);
  return text.size() >= 10 && length >= 2 && length <= 100'000'000 && text[8] == '{' &&
         (text[9] == '"' || text[9] == '}');
}

Kind LlmcKind(string_view text) {
  constexpr size_t kHeader = 1024;
  if (text.size() < kHeader) return Kind::kUnknown;
  const uint64_t magic = Number(text, 0, 4), version = Number(text, 4, 4);
  const bool rest_is_zero =
      std::all_of(text.begin() + 12, text.begin() + kHeader, [](char c) { return c == '\0'; });
  if (version == 0 || version > 100 || !rest_is_zero) return Kind::kUnknown;
  if (magic == 20240520) return Kind::kLlmcTokens;
  return magic == 20240801 ? Kind::kLlmcTokens32 : Kind::kUnknown;
}

bool IsWebPage(string_view text) {
  if (absl::StartsWith(text, "\xef\xbb\xbf")) text.remove_prefix(3);
  while (!text.empty() && absl::ascii_isspace(text[0])) text.remove_prefix(1);
  return absl::StartsWithIgnoreCase(text, "<!doctype html") ||
         absl::StartsWithIgnoreCase(text, "<html");
}

// Returns whether the text is UTF-8 without control characters. Its last character may be
// incomplete.
bool IsText(string_view text) {
  if (text.empty()) return false;
  for (const char c : text) {
    if (absl::ascii_iscntrl(c) && !absl::ascii_isspace(c)) return false;
  }
  const size_t valid = ValidUtf8Prefix(std::string(text));
  return valid == text.size() || (text.size() == kLook && valid + 4 > text.size());
}

const char* Name(Wanted wanted) {
  switch (wanted) {
    case Wanted::kTokens:
      return "token numbers";
    case Wanted::kNpy:
      return "a .npy file";
    case Wanted::kSafetensorsRows:
    case Wanted::kWeights:
      return "a safetensors file";
    case Wanted::kIdx:
      return "an IDX file";
    case Wanted::kTorchScript:
      return "a TorchScript file (torch.jit.save)";
    case Wanted::kOptimizerState:
      return "a file of torch.save or a safetensors file";
    case Wanted::kPlugin:
      return "a shared library";
    case Wanted::kText:
      return "the text itself";
    case Wanted::kJson:
      return "JSON";
    case Wanted::kJobFile:
      return "a job file (YAML)";
    case Wanted::kAnyInput:
      return "the file itself";
  }
  return "?";
}

bool MayBe(Kind kind, Wanted wanted) {
  switch (wanted) {
    case Wanted::kTokens:
      return kind == Kind::kText;
    case Wanted::kNpy:
      return kind == Kind::kNpy;
    case Wanted::kSafetensorsRows:
    case Wanted::kWeights:
      return kind == Kind::kSafetensors;
    case Wanted::kIdx:
      return false;
    case Wanted::kTorchScript:
      return kind == Kind::kTorchArchive || kind == Kind::kZip;
    case Wanted::kOptimizerState:
      return kind == Kind::kTorchArchive || kind == Kind::kZip || kind == Kind::kSafetensors;
    case Wanted::kPlugin:
      return kind == Kind::kElf;
    case Wanted::kText:
      return kind != Kind::kGitLfsPointer && kind != Kind::kGitAnnexPointer;
    case Wanted::kJson:
    case Wanted::kJobFile:
      return kind == Kind::kText;
    case Wanted::kAnyInput:
      return kind != Kind::kGitLfsPointer && kind != Kind::kGitAnnexPointer &&
             kind != Kind::kWebPage;
  }
  return true;
}

// The size "548105171" in a git-lfs pointer; empty without a size.
string_view PointedSize(string_view pointer) {
  constexpr string_view kSize = "\nsize ";
  const size_t at = pointer.find(kSize);
  if (at == string_view::npos) return "";
  const string_view rest = pointer.substr(at + kSize.size());
  const string_view digits = rest.substr(0, rest.find_first_not_of("0123456789"));
  return digits.size() > 20 ? "" : digits;
}

std::string Shown(string_view text) {
  constexpr size_t kShown = 40;
  std::string shown(absl::StripLeadingAsciiWhitespace(text).substr(0, kShown));
  shown = shown.substr(0, shown.find_first_of("\r\n"));
  return shown.substr(0, ValidUtf8Prefix(shown));
}

std::string What(Kind kind, string_view beginning) {
  switch (kind) {
    case Kind::kUnknown:
      return "something else";
    case Kind::kGitLfsPointer: {
      const string_view size = PointedSize(beginning);
      return absl::StrCat("a git-lfs pointer (a text in place of a file",
                          size.empty() ? "" : " of ", size, size.empty() ? "" : " bytes", ")");
    }
    case Kind::kGitAnnexPointer:
      return "a git-annex pointer (a text in place of a file)";
    case Kind::kWebPage:
      return "a web page (HTML)";
    case Kind::kXml:
      return "an XML text";
    case Kind::kGzip:
      return "a gzip file";
    case Kind::kZstandard:
      return "a Zstandard file";
    case Kind::kXz:
      return "an xz file";
    case Kind::kBzip2:
      return "a bzip2 file";
    case Kind::kSevenZip:
      return "a 7z archive";
    case Kind::kTar:
      return "a tar archive";
    case Kind::kZip:
      return "a ZIP archive";
    case Kind::kNpz:
      return "a .npz archive of NumPy arrays";
    case Kind::kTorchArchive:
      return "an archive of PyTorch (torch.save or torch.jit.save)";
    case Kind::kPickle:
      return "a Python pickle";
    case Kind::kNpy:
      return "a .npy file (a NumPy array)";
    case Kind::kSafetensors:
      return "a safetensors file";
    case Kind::kLlmcTokens:
    case Kind::kLlmcTokens32:
      return "a token file of llm.c, which begins with a header of 1024 bytes";
    case Kind::kMegatronIndex:
      return "an index of Megatron-LM (.idx)";
    case Kind::kParquet:
      return "a Parquet file";
    case Kind::kArrow:
      return "an Arrow file";
    case Kind::kHdf5:
      return "an HDF5 file";
    case Kind::kGguf:
      return "a GGUF file";
    case Kind::kElf:
      return "a program or shared library (ELF)";
    case Kind::kText:
      return absl::StrCat("text that begins with '", Shown(beginning), "'");
  }
  return "?";
}

constexpr char kArrayToTokens[] = ".astype('<u2').tofile('train.bin')";

std::string NextForTorch(Wanted wanted) {
  if (wanted == Wanted::kOptimizerState) {
    return "in Python, torch.save(torch.load(FILE, weights_only=True), 'new.pt') writes a file of "
           "torch.save, if it is one from before PyTorch 1.6";
  }
  if (wanted != Wanted::kWeights && wanted != Wanted::kSafetensorsRows) {
    return "write the values in it in the format that is expected";
  }
  return "in Python, safetensors.torch.save_file(torch.load(FILE, weights_only=True), "
         "'model.safetensors') writes a safetensors file with its tensors";
}

std::string NextForArrays(Kind kind, Wanted wanted) {
  const char* const load = kind == Kind::kNpz ? "numpy.load(FILE)['NAME']" : "numpy.load(FILE)";
  if (wanted == Wanted::kTokens) {
    return absl::StrCat("in Python, ", load, kArrayToTokens,
                        " writes its numbers alone (with '<u4' for dtype: uint32)");
  }
  if (kind == Kind::kNpz) {
    return absl::StrCat("in Python, numpy.save('x.npy', ", load, ") writes one array of it");
  }
  return wanted == Wanted::kSafetensorsRows || wanted == Wanted::kIdx
             ? "for .npy files the key is npy, with inputs and labels (docs/reference/data.md)"
             : "write the values in it in the format that is expected";
}

// Advice for the user, as the end of a sentence.
std::string Next(Kind kind, Wanted wanted) {
  switch (kind) {
    case Kind::kGitLfsPointer:
      return "'git lfs pull' in its repository fetches the file";
    case Kind::kGitAnnexPointer:
      return "'git annex get' in its repository fetches the file";
    case Kind::kWebPage:
      return "a download may have given a page about the file or a log-in page; download the file "
             "itself (on huggingface.co the link has /resolve/, not /blob/)";
    case Kind::kXml:
      return "it may be the error message of a server; download the file again";
    case Kind::kGzip:
      return "'gzip -dc FILE > NEW' unpacks it";
    case Kind::kZstandard:
      return "'zstd -d FILE' unpacks it";
    case Kind::kXz:
      return "'xz -dc FILE > NEW' unpacks it";
    case Kind::kBzip2:
      return "'bzip2 -dc FILE > NEW' unpacks it";
    case Kind::kSevenZip:
      return "'7z x FILE' unpacks it";
    case Kind::kTar:
      return "'tar -xf FILE' unpacks it";
    case Kind::kZip:
      return "'unzip FILE' unpacks it";
    case Kind::kNpz:
    case Kind::kNpy:
      return NextForArrays(kind, wanted);
    case Kind::kTorchArchive:
    case Kind::kPickle:
      return NextForTorch(wanted);
    case Kind::kSafetensors:
      if (wanted == Wanted::kNpy || wanted == Wanted::kIdx) {
        return "for safetensors files the key is safetensors (docs/reference/data.md)";
      }
      return "write the values in it in the format that is expected";
    case Kind::kLlmcTokens:
      return "'tail -c +1025 FILE > NEW' leaves the header out; dtype is uint16";
    case Kind::kLlmcTokens32:
      return "'tail -c +1025 FILE > NEW' leaves the header out; dtype is uint32";
    case Kind::kMegatronIndex:
      return "the tokens are in the .bin file beside it";
    case Kind::kText:
      if (wanted == Wanted::kTokens) {
        return "'muster data pack --tokenizer bytes --out NEW FILE' makes tokens of it "
               "(docs/reference/data.md)";
      }
      return "it may be the message of a download that failed; look into the file";
    case Kind::kUnknown:
    case Kind::kParquet:
    case Kind::kArrow:
    case Kind::kHdf5:
    case Kind::kGguf:
    case Kind::kElf:
      return "Muster does not read it; write the values in it in the format that is expected";
  }
  return "";
}

}  // namespace

Kind KindOf(string_view beginning) {
  beginning = beginning.substr(0, kLook);
  for (const Magic& magic : kMagics) {
    if (absl::StartsWith(beginning, magic.bytes)) return magic.kind;
  }
  if (IsGzip(beginning)) return Kind::kGzip;
  if (IsBzip2(beginning)) return Kind::kBzip2;
  if (const Kind zip = ZipKind(beginning); zip != Kind::kUnknown) return zip;
  if (IsPickle(beginning)) return Kind::kPickle;
  if (IsSafetensors(beginning)) return Kind::kSafetensors;
  if (const Kind llmc = LlmcKind(beginning); llmc != Kind::kUnknown) return llmc;
  if (beginning.size() > 262 && beginning.substr(257, 5) == "ustar") return Kind::kTar;
  if (IsWebPage(beginning)) return Kind::kWebPage;
  return IsText(beginning) ? Kind::kText : Kind::kUnknown;
}

std::optional<std::string> Mismatch(string_view beginning, Wanted wanted) {
  beginning = beginning.substr(0, kLook);
  Kind kind = KindOf(beginning);
  const bool may_be_pickle = kind == Kind::kUnknown && wanted != Wanted::kTokens;
  if (may_be_pickle && IsOldPickle(beginning)) kind = Kind::kPickle;
  if (kind == Kind::kUnknown || MayBe(kind, wanted)) return std::nullopt;
  return absl::StrCat("expected ", Name(wanted), ", found ", What(kind, beginning), ": ",
                      Next(kind, wanted));
}

std::optional<std::string> Mismatch(const uint8_t* data, size_t size, Wanted wanted) {
  return Mismatch(string_view(reinterpret_cast<const char*>(data), std::min(size, kLook)), wanted);
}

absl::Status CheckKind(const std::string& path, const uint8_t* data, size_t size, Wanted wanted) {
  const auto mismatch = Mismatch(data, size, wanted);
  if (!mismatch.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", *mismatch));
}

std::optional<std::string> TextInPlaceOfTokens(string_view beginning) {
  constexpr size_t kLeast = 64;
  constexpr size_t kLeastDifferent = 8;
  beginning = beginning.substr(0, kLook);
  if (beginning.size() < kLeast || KindOf(beginning) != Kind::kText) return std::nullopt;
  std::bitset<256> different;
  for (const char c : beginning) different.set(static_cast<uint8_t>(c));
  if (different.count() < kLeastDifferent) return std::nullopt;
  const bool numbers =
      beginning.find_first_not_of("0123456789 \t\r\n") == string_view::npos;
  return absl::StrCat("the file looks like ", What(Kind::kText, beginning), ": ",
                      numbers ? "in Python, numpy.fromstring(open(FILE).read(), '<u2', "
                                "sep=' ').tofile(NEW) writes the numbers as tokens"
                              : Next(Kind::kText, Wanted::kTokens));
}

}  // namespace muster::filekind
